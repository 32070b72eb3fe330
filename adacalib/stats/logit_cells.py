"""Scored samples → logit_cells: one aggregation over rows, keyed by one packed number."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import CELLS_PER_LOGIT
from adacalib.schemas import id_column

_CELL_OFFSET = 1024
_CELLS_PER_KEY = 2048
_MAX_FOLDS = 4
LOGIT_UNIT = 2.0**20
"""Logits are added up as whole multiples of 2^-20: such a sum is the same on any partitioning."""


def assign_cell(logit: Column) -> Column:
    """Number of the logit cell: floor(32 · logit), for logits within ±16.12.

    >>> spark.range(1).select(assign_cell(F.lit(-0.01)).alias("cell")).first().cell
    -1
    """
    return F.floor(logit * F.lit(CELLS_PER_LOGIT)).cast("int")


def assign_fold(sample_id: Column, n_folds: int, seed: int) -> Column:
    """Fold of a sample, 0 … n_folds - 1, by a seeded hash; 0 throughout with one fold."""
    if n_folds == 1:
        return F.lit(0)
    return F.pmod(F.xxhash64(sample_id, F.lit(seed)), F.lit(n_folds)).cast("int")


def build_logit_cells(
    scored: DataFrame, field_values: DataFrame, field: str, *, n_folds: int = 1, seed: int = 0, has_weights: bool = True
) -> DataFrame:
    """One row per (date, field value, fold, cell) of one field that has samples.

    Field value, fold and cell are packed into one long: the aggregation then keys on a single number, which Spark's
    generated hash map is fastest at.

    Args:
        scored: with uncalibrated_logit (log-odds, within ±16.12), label, weight, date, sample_id and the field's id.
        field_values: table of that name; gives the raw value of each id, so that days can be added up later.
        n_folds: folds, 1 to 4.
        has_weights: without weights the weighted sums follow from the counts and are not added up a second time.
    """
    if not 1 <= n_folds <= _MAX_FOLDS:
        raise ValueError(f"n_folds {n_folds}: the packed key has room for 1 to {_MAX_FOLDS}")
    logit, label = F.col("uncalibrated_logit"), F.col("label")
    place = F.col(id_column(field)).cast("long") * _MAX_FOLDS + assign_fold(F.col("sample_id"), n_folds, seed)
    key = place * _CELLS_PER_KEY + (assign_cell(logit) + _CELL_OFFSET)
    sums = [
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(label.cast("long")).alias("n_responses"),
        F.sum(F.round(logit.cast("double") * LOGIT_UNIT).cast("long")).alias("sum_logit"),
    ]
    if has_weights:
        weight = F.col("weight")
        sums += [
            F.sum(weight).alias("sum_weight"),
            F.sum(weight * label).alias("sum_weight_responses"),
            F.sum(weight * logit).alias("sum_weight_logit"),
        ]
    cells = scored.groupBy("date", key.alias("key")).agg(*sums)
    if not has_weights:
        cells = (
            cells.withColumn("sum_weight", F.col("n_samples").cast("double"))
            .withColumn("sum_weight_responses", F.col("n_responses").cast("double"))
            .withColumn("sum_weight_logit", F.col("sum_logit") / F.lit(LOGIT_UNIT))
        )
    return _unpack(cells, field_values.filter(F.col("field") == field))


def _unpack(cells: DataFrame, values: DataFrame) -> DataFrame:
    place = F.shiftright("key", 11)
    unpacked = cells.select(
        "date",
        F.shiftright(place, 2).cast("int").alias("field_value_id"),
        F.pmod(place, F.lit(_MAX_FOLDS)).cast("int").alias("fold"),
        (F.pmod("key", F.lit(_CELLS_PER_KEY)) - _CELL_OFFSET).cast("int").alias("cell"),
        *(name for name in cells.columns if name not in ("date", "key")),
    )
    return unpacked.join(values.select("field", "field_value", "value_kind", "field_value_id"), "field_value_id")
