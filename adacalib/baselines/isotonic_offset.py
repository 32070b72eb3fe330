"""Isotonic regression plus an empirical-Bayes level per field value: the simplest thing that works."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.special import logit as to_logit

from adacalib.baselines.isotonic import Isotonic, fit_isotonic
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells
from adacalib.cells.value_effects import fit_value_effects


@dataclass(frozen=True)
class IsotonicOffset:
    """logit p = isotonic log-odds + level of the field value.

    Attributes:
        isotonic: the function of all field values.
        level_V: level of each field value, log-odds; for id 0 and for ids without cells the levels' mean.
        tau: standard deviation of the levels' prior, log-odds.
    """

    isotonic: Isotonic
    level_V: Floats
    tau: float

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; unknown ids get the level of id 0; see `Baseline`."""
        known = (field_value_id > 0) & (field_value_id < len(self.level_V))
        level = self.level_V[np.where(known, field_value_id, 0)]
        probability: Floats = expit(compute_curve_logit(self.isotonic, logit) + level)
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_isotonic_offset(cells: LogitCells) -> IsotonicOffset:
    """Fits the isotonic function, then the levels on top of it (algorithm.md step 2, level only).

    A rate of 0 or 1 in an end block has no log-odds: there the isotonic's `lowest_rate` and `highest_rate` count.

    Raises:
        NoCellsError: there are no cells.
    """
    isotonic = fit_isotonic(cells)
    effects = fit_value_effects(cells, compute_curve_logit(isotonic, cells.logit), slope=False)
    return IsotonicOffset(isotonic, effects.level_V, effects.tau_level)


def compute_curve_logit(isotonic: Isotonic, logit: Floats) -> Floats:
    """Log-odds of the isotonic function, finite: `lowest_rate` and `highest_rate` where it is 0 or 1."""
    return np.asarray(to_logit(np.clip(isotonic.rate(logit), isotonic.lowest_rate, isotonic.highest_rate)))
