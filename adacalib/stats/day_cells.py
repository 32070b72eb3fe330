"""Logit cells of stored days: by raw field value, so that days of different runs can be added up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adacalib.schemas import DAY_CELLS, LOGIT_CELLS

_WEIGHTS = ("sum_weight", "sum_weight_responses", "sum_weight_logit")


def drop_ids(cells: DataFrame) -> DataFrame:
    """Logit cells as they are stored."""
    return cells.select(*DAY_CELLS.fieldNames())


def count_stored_values(day_cells: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Samples and responses of each stored field value: name, value, n_samples, n_responses."""
    sums = [F.sum(name).alias(name) for name in ("n_samples", "n_responses")]
    own = day_cells.filter(F.col("field").isin(*fields))
    return own.groupBy(F.col("field").alias("name"), F.col("field_value").alias("value")).agg(*sums)


def build_window_cells(day_cells: DataFrame, field_values: DataFrame, last_day: date, decay: float) -> DataFrame:
    """Stored days as logit_cells of a run: with its ids, and each day's weights times decay^(days before last_day).

    Counts stay counts; with decay 1 weights stay as they are, to the last bit.

    Args:
        day_cells: of the window's days.
        field_values: of the run; has every value of the days.
        last_day: the day that keeps its weight.
        decay: in (0, 1].
    """
    keys = ("field", "field_value", "value_kind")
    named = field_values.select(*(F.col(key).alias(f"of_{key}") for key in keys), "field_value_id")
    same = [F.col(key).eqNullSafe(F.col(f"of_{key}")) for key in keys]
    joined = day_cells.join(named, same, "left")
    if decay < 1:
        share = F.pow(F.lit(decay), F.datediff(F.lit(last_day), F.col("date")))
        joined = joined.withColumns({name: F.col(name) * share for name in _WEIGHTS})
    unknown = F.raise_error(
        F.concat_ws(" ", F.lit("a stored day has a value that field_values lacks:"), "field", "field_value")
    )
    known = F.coalesce("field_value_id", unknown.cast("int")).alias("field_value_id")
    return joined.select(*(known if name == "field_value_id" else F.col(name) for name in LOGIT_CELLS.fieldNames()))
