"""Train ∪ dev rows → dense ids of field values and of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from adacalib.schemas import FIELD_VALUES


def assign_value_ids(
    rows: DataFrame, columns: Mapping[str, str], *, counts: Column | None = None, stored: DataFrame | None = None
) -> DataFrame:
    """One row per (name, value): the dense id from 1, the most frequent value first, ties in order of the value.

    null is a value of its own where it occurs, and so is the empty string.

    Args:
        rows: rows of train ∪ dev with `label`.
        columns: name to be written → text column of rows.
        counts: condition on rows; the others give their values an id, but are not counted. By default all are.
        stored: samples of the same names that are not among the rows, of `day_cells.count_stored_values`.

    Returns:
        Columns name, value, value_id, n_samples, n_responses. The order that decides ids depends on counts and values
        only, so any partitioning of the rows gives the same ids.
    """
    pairs = F.explode(F.array(*(F.struct(F.lit(n).alias("name"), F.col(c).alias("value")) for n, c in columns.items())))
    is_counted = F.lit(True) if counts is None else counts
    found = (
        rows.select(pairs.alias("pair"), "label", is_counted.alias("is_counted"))
        .groupBy("pair.name", "pair.value")
        .agg(
            F.count_if("is_counted").alias("n_samples"),
            F.sum(F.when(F.col("is_counted"), F.col("label")).otherwise(0)).cast("long").alias("n_responses"),
        )
    )
    if stored is not None:
        sums = [F.sum(name).alias(name) for name in ("n_samples", "n_responses")]
        found = found.unionByName(stored).groupBy("name", "value").agg(*sums)
    order = Window.partitionBy("name").orderBy(F.desc("n_samples"), F.asc_nulls_first("value"))
    return found.withColumn("value_id", F.row_number().over(order))


def build_field_values(value_ids: DataFrame, fields: Sequence[str]) -> DataFrame:
    """One row per (field, field value) of train ∪ dev, and per field the row of unseen values (id 0, no samples)."""
    seen = value_ids.filter(F.col("name").isin(*fields)).select(
        F.col("name").alias("field"),
        F.col("value").alias("field_value"),
        F.when(F.col("value").isNull(), "null").otherwise("value").alias("value_kind"),
        F.col("value_id").alias("field_value_id"),
        "n_samples",
        "n_responses",
    )
    unseen = seen.sparkSession.createDataFrame([(field, None, "unseen", 0, 0, 0) for field in fields], FIELD_VALUES)
    return seen.unionByName(unseen)


def join_value_ids(rows: DataFrame, value_ids: DataFrame, name: str, column: str, broadcast: bool) -> DataFrame:
    """Adds `value_id__NAME`, the dense id of the row's value; 0 where train ∪ dev do not have it."""
    ids = value_ids.filter(F.col("name") == name).select("value", F.col("value_id").alias(f"value_id__{name}"))
    ids = F.broadcast(ids) if broadcast else ids
    joined = rows.join(ids, F.col(column).eqNullSafe(F.col("value")), "left").drop("value")
    return joined.withColumn(f"value_id__{name}", F.coalesce(f"value_id__{name}", F.lit(0)))
