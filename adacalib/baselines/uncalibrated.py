"""The un-calibrated score itself, as a method among the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints


@dataclass(frozen=True)
class Uncalibrated:
    """Nothing to fit."""

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """σ(logit), within [1e-7, 1 - 1e-7]; see `Baseline`."""
        return np.clip(expit(logit), PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
