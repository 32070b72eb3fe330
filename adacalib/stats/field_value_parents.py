"""Train ∪ dev rows → field_value_parents: the category that each value of the calibrated field belongs to."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from adacalib.schemas import FIELD_VALUE_PARENTS


def build_field_value_parents(rows: DataFrame, value_ids: DataFrame, field: str) -> DataFrame:
    """One row per value of the field in train ∪ dev: its parent, with a dense id in the order of the parents' names.

    A value that occurs with several parents takes the one with most weight (of equals the first by name), and
    `n_parents` tells how many there are. A value that never has one has parent_id 0.

    Args:
        rows: rows of train ∪ dev with `field__FIELD`, `parent` (text) and `weight`.
        value_ids: of `assign_value_ids`.
        field: the calibrated field.
    """
    ids = value_ids.filter(F.col("name") == field).select(
        F.col("value").alias("field_value"), F.col("value_id").alias("field_value_id")
    )
    pairs = (
        rows.filter(F.col("parent").isNotNull())
        .groupBy(F.col(f"field__{field}").alias("raw_value"), "parent")
        .agg(F.round(F.sum("weight"), 6).alias("weight"))  # a sum's last bits depend on the partitioning
    )
    of_value = Window.partitionBy("raw_value")
    chosen = (
        pairs.withColumn("place", F.row_number().over(of_value.orderBy(F.desc("weight"), "parent")))
        .withColumn("n_parents", F.count(F.lit(1)).over(of_value).cast("int"))
        .filter("place = 1")
    )
    names = chosen.select("parent").distinct()
    numbered = names.withColumn("parent_id", F.row_number().over(Window.orderBy("parent")))
    joined = ids.join(chosen, F.col("field_value").eqNullSafe(F.col("raw_value")), "left").join(
        F.broadcast(numbered), "parent", "left"
    )
    return joined.select(
        F.lit(field).alias("field"),
        "field_value_id",
        "parent",
        F.coalesce("parent_id", F.lit(0)).alias("parent_id"),
        F.coalesce("n_parents", F.lit(0)).alias("n_parents"),
    ).select(*FIELD_VALUE_PARENTS.fieldNames())
