"""GammaCalib: gamma calibration (Kweon, Kang & Yu 2022, "Obtaining Calibrated Probabilities with Personalized Ranking
Models")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logistic import compute_log_loss_sum, fit_level, fit_logistic, smooth_responses
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values

SHIFT = 1.0
"""x at the lowest logit of the fit; the paper wants x > 0 and leaves the rest open. In log-odds."""


@dataclass(frozen=True)
class GammaCalibration:
    """p = σ(a·log x + b·x + c) with x = s − s_min + SHIFT, s the un-calibrated logit; it never decreases in s.

    Attributes:
        a: weight of log x.
        b: weight of x, per unit of log-odds.
        c: constant, log-odds.
        lowest_logit: s_min, the lowest logit of the fit.
        highest_logit: the highest logit of the fit.
    """

    a: float
    b: float
    c: float
    lowest_logit: float
    highest_logit: float

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`.

        Below the lowest logit of the fit x stays at SHIFT (log x knows no less). Above the highest one the log-odds
        go on with the slope they have there, since a/x + b may turn negative further up.
        """
        inside = np.clip(logit, self.lowest_logit, self.highest_logit)
        x = inside - self.lowest_logit + SHIFT
        # rounding can leave a slope of 0 just below it
        end_slope = max(self.a / (self.highest_logit - self.lowest_logit + SHIFT) + self.b, 0.0)
        beyond = end_slope * np.maximum(logit - self.highest_logit, 0.0)
        probability: Floats = expit(self.a * np.log(x) + self.b * x + self.c + beyond)
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_gamma(cells: LogitCells) -> GammaCalibration:
    """Maximum likelihood on the pooled cells under a/x + b ≥ 0, with Platt's smoothed targets (`smooth_responses`).

    The slope of a·log x + b·x is a/x + b, monotone in x: at least 0 at both ends of the range, it is so everywhere
    between. (The slope 2a·x + b belongs to the Gaussian form.) With u and v the slopes at the ends x_0 < x_1 of the
    range, a = (u − v)/(1/x_0 − 1/x_1) and b = v − a/x_1, so log-odds are linear in (u, v, c) and the constraint is
    u, v ≥ 0. The likelihood is concave: its maximum is the best of the maxima with none, one or both of u and v at 0
    that keep the constraint.

    Labels of one class give a finite fit (smoothed targets). Responses that fall with the score give u = v = 0, the
    mean label. Logits that differ by less than a cell's width say nothing about a shape: then a = 0, b = 1 and only
    the level is fitted.

    Raises:
        NoCellsError: there are no cells.
        NotSettledError: Newton's method does not come to rest.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    response = smooth_responses(pooled.weight, pooled.response)
    lowest, highest = float(pooled.logit.min()), float(pooled.logit.max())
    x = pooled.logit - lowest + SHIFT
    if highest - lowest < 1 / CELLS_PER_LOGIT:
        return GammaCalibration(0.0, 1.0, fit_level(x, pooled.weight, response), lowest, highest)
    last = highest - lowest + SHIFT
    a_per_slope = 1 / (1 / SHIFT - 1 / last)
    of_first_slope = a_per_slope * (np.log(x) - x / last)
    features_N2 = np.stack([of_first_slope, x - of_first_slope], axis=1)
    (u, v), c = _fit_slopes_from_zero(features_N2, pooled.weight, response)
    a = (u - v) * a_per_slope
    return GammaCalibration(float(a), float(v - a / last), c, lowest, highest)


def _fit_slopes_from_zero(features_N2: Floats, weight: Floats, response: Floats) -> tuple[Floats, float]:
    """Coefficients of at least 0 and the level: the likeliest of the fits with none, one or both held at 0."""
    best = (np.zeros(2), 0.0)
    best_loss = np.inf
    for free in ([0, 1], [1], [0], []):
        slopes = np.zeros(2)
        slopes[free], level = fit_logistic(features_N2[:, free], weight, response)
        loss = compute_log_loss_sum(features_N2 @ slopes + level, weight, response)
        if (slopes >= 0).all() and loss < best_loss:
            best, best_loss = (slopes, level), loss
    return best
