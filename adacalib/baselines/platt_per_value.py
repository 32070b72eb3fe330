"""Ridge Platt per field value: a line on the log-odds for each, pulled towards the line of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adacalib.baselines.platt import Platt, fit_platt
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells
from adacalib.cells.value_effects import ValueEffects, fit_value_effects

RIDGE = 1.0
"""Weight of ½(level² + slope²) of every value, level in log-odds, slope in log-odds per standard deviation of the
global line: the prior of a value is a standard normal, whatever the data say of the values' spread."""


@dataclass(frozen=True)
class PlattPerValue:
    """logit p = l + level_z + slope_z · (l − mean) / scale, l = the global Platt line at the un-calibrated logit.

    Attributes:
        platt: the line of all field values.
        effects: level and slope of each field value around it; 0 for id 0 and for ids without cells.
    """

    platt: Platt
    effects: ValueEffects

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7]; ids without effects: the global line; see `Baseline`."""
        known = (field_value_id > 0) & (field_value_id < len(self.effects.level_V))
        line = _compute_line(self.platt, logit)
        probability: Floats = expit(self.effects.apply(np.where(known, field_value_id, 0), line))
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_platt_per_value(cells: LogitCells) -> PlattPerValue:
    """Fits the line of all values, then of each value level and slope around it, with a fixed ridge (`RIDGE`).

    Maximises Σ log-likelihood − ½·RIDGE·(level² + slope²) per value (Newton's method of `fit_value_effects`, all
    values at once, its prior held fixed). A value of one class has a finite fit. Where the global line is flat, no
    value has a slope: it is measured along that line.

    Raises:
        NoCellsError: there are no cells.
        NotSettledError: the global fit does not come to rest.
    """
    platt = fit_platt(cells)
    deviation = float(RIDGE**-0.5)
    effects = fit_value_effects(cells, _compute_line(platt, cells.logit), tau=(deviation, deviation), free_mean=False)
    return PlattPerValue(platt, effects)


def _compute_line(platt: Platt, logit: Floats) -> Floats:
    return platt.slope * logit + platt.level
