"""Platt scaling: one line on the log-odds for all field values (Platt 1999)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logistic import fit_level, fit_logistic, smooth_responses
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class Platt:
    """p = σ(slope·s + level), s the un-calibrated logit.

    Attributes:
        slope: per unit of un-calibrated log-odds; negative where the responses fall with the score.
        level: log-odds at s = 0.
    """

    slope: float
    level: float

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`."""
        probability: Floats = expit(self.slope * logit + self.level)
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_platt(cells: LogitCells) -> Platt:
    """Maximum likelihood on the pooled cells with Platt's smoothed targets (`smooth_responses`).

    Unconstrained, as Platt has it: a predictor that ranks the wrong way round is turned round. With the smoothed
    targets labels of one class (slope near 0, level near the log-odds of 1/(N + 2)) and separable ones have a finite
    fit. Logits that differ by less than a cell's width say nothing about a slope: then it is 1 and only the level is
    fitted.

    Raises:
        NoCellsError: there are no cells.
        NotSettledError: Newton's method does not come to rest.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    response = smooth_responses(pooled.weight, pooled.response)
    if np.ptp(pooled.logit) < 1 / CELLS_PER_LOGIT:
        return Platt(slope=1.0, level=fit_level(pooled.logit, pooled.weight, response))
    slope, level = fit_logistic(pooled.logit[:, None], pooled.weight, response)
    return Platt(slope=float(slope[0]), level=level)
