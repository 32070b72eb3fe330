"""Scored samples → logit_cells: one aggregation over rows, keyed by one packed number."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import CELLS_PER_LOGIT
from adacalib.schemas import id_column

_CELL_OFFSET = 1024
_CELL_BITS = 11
_ID_BITS = 30
_LOW_BITS = 21
"""The bits of a key that choose its place in Spark's generated hash map, which adds no more hashing: two keys that
share them are soon in each other's way, and their rows go through the slow map behind."""
_FIRST_DAY = 719_163
"""Added to days since 1970: the first of January of the year 1 is day 1; day 0 is no date."""

MAX_FIELD_VALUE_ID = 2**_ID_BITS - 1
"""The key has room for so many field values: a billion; days up to the year 9999 take the other 22 of its 63 bits."""

LOGIT_UNIT = 2.0**20
"""Logits are added up as whole multiples of 2^-20: such a sum is the same on any partitioning."""


def assign_cell(logit: Column) -> Column:
    """Number of the logit cell: floor(32 · logit), for logits within ±16.12.

    >>> spark.range(1).select(assign_cell(F.lit(-0.01)).alias("cell")).first().cell
    -1
    """
    return F.floor(logit * F.lit(CELLS_PER_LOGIT)).cast("int")


def build_logit_cells(scored: DataFrame, field_values: DataFrame, field: str, *, has_weights: bool = True) -> DataFrame:
    """One row per (date, field value, cell) of one field that has samples.

    Date, field value and cell are packed into one long: the aggregation then keys on a single number, which
    Spark's generated hash map is fastest at. Its low bits hold cell and, of up to 1,024 field values, the id, so that
    no two keys share them; what lies above, dates and the rest of larger ids, is hashed into them.

    Args:
        scored: with uncalibrated_logit (log-odds, within ±16.12), label, weight, date and the field's id
            (MAX_FIELD_VALUE_ID at most).
        field_values: table of that name; gives the raw value of each id, so that days can be added up later.
        has_weights: without weights the weighted sums follow from the counts and are not added up a second time.
    """
    logit, label = F.col("uncalibrated_logit"), F.col("label")
    day = F.coalesce(F.unix_date("date") + F.lit(_FIRST_DAY), F.lit(0)).cast("long")
    key = _mix((day * 2**_ID_BITS + F.col(id_column(field))) * 2**_CELL_BITS + (assign_cell(logit) + _CELL_OFFSET))
    sums = [
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(label.cast("long")).alias("n_responses"),
        # rint, for round goes through BigDecimal and takes as long as all the rest
        F.sum(F.rint(logit.cast("double") * LOGIT_UNIT).cast("long")).alias("sum_logit"),
    ]
    if has_weights:
        weight = F.col("weight")
        sums += [
            F.sum(weight).alias("sum_weight"),
            F.sum(weight * label).alias("sum_weight_responses"),
            F.sum(weight * logit).alias("sum_weight_logit"),
        ]
    cells = scored.groupBy(key.alias("key")).agg(*sums)
    if not has_weights:
        cells = (
            cells.withColumn("sum_weight", F.col("n_samples").cast("double"))
            .withColumn("sum_weight_responses", F.col("n_responses").cast("double"))
            .withColumn("sum_weight_logit", F.col("sum_logit") / F.lit(LOGIT_UNIT))
        )
    return _unpack(cells, field_values.filter(F.col("field") == field))


def _mix(key: Column) -> Column:
    """The key with its low bits changed by a hash of those above; the same once more gives the key back."""
    above = F.shiftright(key, _LOW_BITS)
    return key.bitwiseXOR(F.xxhash64(above).bitwiseAND(F.lit(2**_LOW_BITS - 1)))


def _unpack(cells: DataFrame, values: DataFrame) -> DataFrame:
    def bits(n_bits: int, above: int) -> Column:
        return F.shiftright("key", above).bitwiseAND(F.lit(2**n_bits - 1)).cast("int")

    cells = cells.withColumn("key", _mix(F.col("key")))
    day = F.shiftright("key", _CELL_BITS + _ID_BITS).cast("int")
    unpacked = cells.select(
        F.when(day > 0, F.date_from_unix_date(day - F.lit(_FIRST_DAY))).alias("date"),
        bits(_ID_BITS, _CELL_BITS).alias("field_value_id"),
        (bits(_CELL_BITS, 0) - F.lit(_CELL_OFFSET)).alias("cell"),
        *(name for name in cells.columns if name != "key"),
    )
    names = values.select("field", "field_value", "value_kind", "field_value_id")
    # not an inner join: Spark would ask of every row, before the aggregation, whether its key is null
    unknown = F.raise_error(F.concat(F.lit("no such id in field_values: "), F.col("field_value_id").cast("string")))
    named = unpacked.join(names, "field_value_id", "left")
    return named.withColumn("field", F.coalesce("field", unknown.cast("string")))
