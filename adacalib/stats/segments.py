"""Piecewise-linear functions as column expressions: which segment a number lies in, and the value there."""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import Floats


def find_segment(rows: DataFrame, x: str, bounds: Column, n_bounds: int) -> DataFrame:
    """Adds `segment`, the number of bounds at or below x.

    Found by halves: one column per step, or each would be computed in the next one twice.

    Args:
        x: name of a column of numbers.
        bounds: arrays of increasing numbers, of at most n_bounds; where one is shorter, what is missing counts as
            above every x.
    """
    rows = rows.withColumn("segment", F.lit(0))
    for power in reversed(range(n_bounds.bit_length())):
        # beyond the last bound stands null, which no x is at or above
        passed = F.col(x) >= F.get(bounds, F.col("segment") + F.lit(2**power - 1))
        rows = rows.withColumn("segment", F.col("segment") + F.when(passed, 2**power).otherwise(0))
    return rows


def interpolate(rows: DataFrame, x: str, x_knots: Floats, y_knots: Floats, name: str) -> DataFrame:
    """Adds the value at x of the line through knots, constant beyond the ends; what `numpy.interp` gives.

    Args:
        x: name of a column of doubles.
        x_knots: increasing, at least one.
        y_knots: of the same length.
        name: of the column that is added.
    """
    place = F.greatest(F.col("segment") - 1, F.lit(0))
    lower_x, lower_y = F.get(_as_array(x_knots), place), F.get(_as_array(y_knots), place)
    slopes = np.append(np.diff(y_knots) / np.diff(x_knots), 0.0)
    inside = lower_y + F.get(_as_array(slopes), place) * (F.col(x) - lower_x)
    y = F.when(F.col("segment") == 0, F.lit(float(y_knots[0]))).otherwise(inside)
    return find_segment(rows, x, _as_array(x_knots), len(x_knots)).withColumn(name, y).drop("segment")


def _as_array(values: Floats) -> Column:
    return F.array(*[F.lit(float(value)) for value in values])
