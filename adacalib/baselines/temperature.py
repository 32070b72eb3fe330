"""Temperature scaling: the log-odds divided by one number (Guo et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logistic import smooth_responses
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values

TEMPERATURE_LIMITS = (0.01, 100.0)
"""A temperature outside says: sharper than any score, or no relation between score and response."""


@dataclass(frozen=True)
class Temperature:
    """p = σ(s / temperature), s the un-calibrated logit.

    Attributes:
        temperature: T > 0; above 1 where the predictor is over-confident.
    """

    temperature: float

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`."""
        probability: Floats = expit(logit / self.temperature)
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_temperature(cells: LogitCells) -> Temperature:
    """Maximum likelihood on the pooled cells with Platt's smoothed targets (`smooth_responses`).

    The likelihood is concave in 1/T, so its derivative Σ s·(y − w·σ(s/T)) changes its sign once, if at all. Where it
    does not within TEMPERATURE_LIMITS (responses that fall with the score; labels of one class that the score's sign
    separates), the limit on the better side counts. With all logits 0 every T predicts the same, and T is 1.

    Temperature has no level: where the predictor's mean is wrong, no T mends it.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    response = smooth_responses(pooled.weight, pooled.response)
    if not pooled.logit.any():
        return Temperature(1.0)

    def derivative(log_temperature: float) -> float:
        p = expit(pooled.logit * np.exp(-log_temperature))
        return float(np.sum(pooled.logit * (response - pooled.weight * p)))

    sharpest, flattest = (float(limit) for limit in np.log(TEMPERATURE_LIMITS))
    if derivative(flattest) <= 0:  # a larger 1/T loses already at the smallest 1/T
        return Temperature(TEMPERATURE_LIMITS[1])
    if derivative(sharpest) >= 0:
        return Temperature(TEMPERATURE_LIMITS[0])
    return Temperature(float(np.exp(brentq(derivative, sharpest, flattest, xtol=1e-12))))
