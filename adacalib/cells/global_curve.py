"""The global curve: one monotone function from un-calibrated to calibrated log-odds for all field values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit as to_logit

from adacalib.cells.bin_bounds import TIE, BoundsError, require_cells
from adacalib.cells.logit_cells import Floats, Ints, LogitCells, compute_mean_label, pool_values

N_CURVE_BINS = 100
SLOPE_LIMITS = (0.1, 2.0)
"""Slopes allowed beyond the ends."""


@dataclass(frozen=True)
class GlobalCurve:
    """A never decreasing, piecewise-linear function on log-odds; slopes beyond its ends are positive.

    Attributes:
        logit_knots: un-calibrated log-odds of the knots, increasing, at least 1.
        calibrated_knots: calibrated log-odds of the knots, never decreasing.
        slope_lower: slope below the first knot.
        slope_upper: slope above the last knot.
    """

    logit_knots: Floats
    calibrated_knots: Floats
    slope_lower: float
    slope_upper: float

    def evaluate(self, logit: Floats) -> Floats:
        """Calibrated log-odds at un-calibrated log-odds of any shape."""
        below = np.minimum(logit - self.logit_knots[0], 0.0) * self.slope_lower
        above = np.maximum(logit - self.logit_knots[-1], 0.0) * self.slope_upper
        inside: Floats = np.interp(logit, self.logit_knots, self.calibrated_knots)
        return np.asarray(inside + below + above)


def fit_global_curve(cells: LogitCells) -> GlobalCurve:
    """Fits the global curve (algorithm.md step 1).

    Cells of all field values are put into about 100 equal-frequency bins, each cell whole, by its mid-rank. A
    bin's rate is (Σy + .5·ȳ)/(n + .5); pool adjacent violators makes the rates increase; a knot stands at the
    pooled block's mean logit. Beyond the ends goes on the slope over the outer tenth of the blocks, within
    SLOPE_LIMITS.

    Edge cases: with labels of one class only, ȳ is taken as (Σy + .5)/(n + 1), so that every logit is finite. One
    bin only (all scores equal) gives slope 1; rates that never rise give one block and the smallest slope.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    weight, response, logit = _sum_equal_frequency_bins(pooled)
    mean_label = compute_mean_label(response.sum(), weight.sum())
    rate = (response + 0.5 * mean_label) / (weight + 0.5)

    isotonic = isotonic_regression(rate, weights=weight)
    starts = isotonic.blocks[:-1]
    logit_knots = np.add.reduceat(weight * logit, starts) / np.add.reduceat(weight, starts)
    calibrated_knots = to_logit(isotonic.x[starts])
    if len(logit_knots) == 1:
        slope = 1.0 if len(weight) == 1 else SLOPE_LIMITS[0]
        return GlobalCurve(logit_knots, calibrated_knots, slope, slope)
    return GlobalCurve(
        logit_knots,
        calibrated_knots,
        slope_lower=_slope_of_outer_tenth(logit_knots, calibrated_knots),
        slope_upper=_slope_of_outer_tenth(logit_knots[::-1], calibrated_knots[::-1]),
    )


def find_equal_frequency_bins(pooled: LogitCells, n_bins: int) -> Ints:
    """Where equal-frequency bins begin: the position of the first cell of each non-empty bin, increasing from 0.

    A cell goes whole to bin floor(n_bins · mid-rank), mid-rank = (weight before it + half its own) / total weight. So
    a cell of more than 1/n_bins of the weight leaves bins empty, and there are at most min(n_bins, n_cells) bins. A
    mid-rank on the border of two bins, up to TIE, belongs to the upper one.

    Args:
        pooled: cells of one value (or of all, pooled), sorted by cell, at least one.
        n_bins: number of bins, at least 1.

    Raises:
        BoundsError: `n_bins` is below 1.
    """
    if n_bins < 1:
        raise BoundsError(f"n_bins is {n_bins}: equal-frequency bins are at least 1; give a whole number from 1 up")
    place = n_bins * (np.cumsum(pooled.weight) - pooled.weight / 2) / pooled.weight.sum() + TIE
    bin_index = np.minimum(place.astype(np.int64), n_bins - 1)
    return np.flatnonzero(np.append(True, bin_index[1:] != bin_index[:-1]))


def _sum_equal_frequency_bins(pooled: LogitCells) -> tuple[Floats, Floats, Floats]:
    """(weight, response, mean logit) of the non-empty bins, in the order of the logit."""
    starts = find_equal_frequency_bins(pooled, N_CURVE_BINS)
    weight = np.add.reduceat(pooled.weight, starts)
    response = np.clip(np.add.reduceat(pooled.response, starts), 0.0, weight)
    return weight, response, np.add.reduceat(pooled.weight * pooled.logit, starts) / weight


def _slope_of_outer_tenth(logit_knots: Floats, calibrated_knots: Floats) -> float:
    outer = max(1, round(len(logit_knots) / 10))
    slope = (calibrated_knots[outer] - calibrated_knots[0]) / (logit_knots[outer] - logit_knots[0])
    return float(np.clip(slope, *SLOPE_LIMITS))
