"""The scores beside AdaCalib's in every evaluation: isotonic regression, alone and with a level per field value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats
from adacalib.schemas import id_column
from adacalib.stats.score_cells import score_column
from adacalib.stats.segments import interpolate


def add_reference_scores(
    rows: DataFrame,
    field: str,
    logit_knots: Floats,
    rate_knots: Floats,
    rate_limits: tuple[float, float],
    level_V: Floats,
) -> DataFrame:
    """Adds `score__isotonic` and `score__isotonic_offset`, as column expressions: no row leaves the JVM.

    The same as `Isotonic.predict` and `IsotonicOffset.predict` up to rounding. Memory per executor, and once on the
    driver, is knots + field values.

    Args:
        rows: scored or calibrated samples.
        field: the field of the levels.
        logit_knots: of the isotonic function, never decreasing; equal ones have equal rates.
        rate_knots: its rates there.
        rate_limits: the rates that it is held within before it becomes log-odds.
        level_V: log-odds that isotonic + offset adds, by dense id; an id that is not among them has the level of id 0.
    """
    own_id = id_column(field)
    distinct, first = np.unique(logit_knots, return_index=True)
    rows = rows.withColumn("x", F.col("uncalibrated_logit").cast("double"))
    rows = interpolate(rows, "x", distinct, rate_knots[first], "rate")
    rows = rows.join(_broadcast_levels(rows, own_id, level_V), own_id, "left")
    held = _clip(F.col("rate"), *rate_limits)
    shifted = F.log(held) - F.log(F.lit(1.0) - held) + F.coalesce("level", F.lit(float(level_V[0])))
    limits = (PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
    scores = {
        score_column("isotonic"): _clip(F.col("rate"), *limits),
        score_column("isotonic_offset"): _clip(F.lit(1.0) / (F.lit(1.0) + F.exp(-shifted)), *limits),
    }
    return rows.withColumns(scores).drop("x", "rate", "level")


def _clip(value: Column, lower: float, upper: float) -> Column:
    return F.greatest(F.lit(lower), F.least(F.lit(upper), value))


def _broadcast_levels(rows: DataFrame, own_id: str, level_V: Floats) -> DataFrame:
    levels = pa.table({own_id: pa.array(range(len(level_V)), pa.int32()), "level": level_V})
    return F.broadcast(rows.sparkSession.createDataFrame(levels))
