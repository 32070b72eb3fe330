"""Beta calibration: one curve of three parameters on the score and its complement (Kull et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logistic import fit_level, fit_logistic, smooth_responses
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class BetaCalibration:
    """p = σ(a·log p̂ − b·log(1 − p̂) + level), p̂ the un-calibrated score; never decreasing in p̂.

    Attributes:
        a: exponent of the score's likelihood ratio at the lower end, ≥ 0.
        b: the same at the upper end, ≥ 0; a = b is Platt scaling.
        level: log-odds.
    """

    a: float
    b: float
    level: float

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`."""
        features_N2 = _compute_features(logit)
        probability: Floats = expit(features_N2 @ np.array([self.a, self.b]) + self.level)
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_beta(cells: LogitCells) -> BetaCalibration:
    """Maximum likelihood on the pooled cells, without the coefficients that would be negative.

    As library betacal's "abm" does it: where a is negative it is dropped and b fitted alone, where b is negative, a
    alone. Two differences, both so that a fit exists for any labels: a coefficient that is negative alone is dropped,
    too (betacal keeps it, and the curve falls), which leaves the mean response; and the targets are smoothed by one
    sample per class (`smooth_responses`), so that classes of one label or separable ones have a finite fit.

    Two scores do not tell a from b: then a = b. Logits that differ by less than a cell's width say nothing of either:
    then a = b = 1, and only the level is fitted.

    Raises:
        NoCellsError: there are no cells.
        NotSettledError: Newton's method does not come to rest.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    response = smooth_responses(pooled.weight, pooled.response)
    if np.ptp(pooled.logit) < 1 / CELLS_PER_LOGIT:
        return BetaCalibration(1.0, 1.0, fit_level(pooled.logit, pooled.weight, response))
    features_N2 = _compute_features(pooled.logit)
    if len(pooled) > 2:
        (a, b), level = _fit_nonnegative(features_N2, pooled.weight, response)
    else:
        (a,), level = _fit_nonnegative(features_N2.sum(axis=1, keepdims=True), pooled.weight, response)
        b = a
    return BetaCalibration(a=float(a), b=float(b), level=level)


def _compute_features(logit: Floats) -> Floats:
    """(log p̂, −log(1 − p̂)), exact at both ends: shape (N, 2)."""
    return np.column_stack([log_expit(logit), -log_expit(-logit)])


def _fit_nonnegative(features_ND: Floats, weight: Floats, response: Floats) -> tuple[Floats, float]:
    """(coefficients, level); the first negative coefficient is set to 0 and the others are fitted again."""
    coefficients_D = np.zeros(features_ND.shape[1])
    free = list(range(features_ND.shape[1]))
    while True:
        solution, level = fit_logistic(features_ND[:, free], weight, response)
        negative = [feature for feature, coefficient in zip(free, solution, strict=True) if coefficient < 0]
        if not negative:
            coefficients_D[free] = solution
            return coefficients_D, level
        free.remove(negative[0])
