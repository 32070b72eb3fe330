"""Isotonic × value ratio: one isotonic regression, then each field value's predictions times one number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.baselines.isotonic import Isotonic, fit_isotonic
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells

PRIOR_RESPONSES = 1.0
"""m: responses' worth of belief that a value's ratio is 1."""


@dataclass(frozen=True)
class IsotonicRatio:
    """p = isotonic(s) · ratio_z, s the un-calibrated logit.

    Attributes:
        isotonic: the function of all field values.
        ratio_V: ratio of each field value, > 0; 1 for id 0 and for ids without cells.
    """

    isotonic: Isotonic
    ratio_V: Floats

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; ids without a ratio get ratio 1; see `Baseline`."""
        known = (field_value_id > 0) & (field_value_id < len(self.ratio_V))
        ratio = np.where(known, self.ratio_V[np.where(known, field_value_id, 0)], 1.0)
        probability: Floats = self.isotonic.rate(logit) * ratio
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_isotonic_ratio(cells: LogitCells) -> IsotonicRatio:
    """Fits the isotonic function, then ratio_z = (Σ y + m) / (Σ isotonic + m) over the value's samples, m = 1.

    The sum of a value's predictions is therefore near its responses, unless the product passes 1 and is clipped. A
    value without a response keeps a ratio of m / (Σ isotonic + m); where the isotonic rate is 0, no ratio raises it.

    Raises:
        NoCellsError: there are no cells.
    """
    isotonic = fit_isotonic(cells)
    response_V = cells.sum_by_value(cells.response)
    expected_V = cells.sum_by_value(cells.weight * isotonic.rate(cells.logit))
    ratio_V = (response_V + PRIOR_RESPONSES) / (expected_V + PRIOR_RESPONSES)
    ratio_V[0] = 1.0  # unseen values have nothing in common but being unseen
    return IsotonicRatio(isotonic, ratio_V)
