"""The reference that floors and attainable levels are computed from: isotonic + level, slope and shape per value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from adacalib.baselines.isotonic import Isotonic, fit_isotonic
from adacalib.baselines.isotonic_offset import compute_curve_logit
from adacalib.cells.floors import compute_cell_noise_floors, compute_fitting_costs
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, LogitCells
from adacalib.cells.metrics import ReferenceLevels
from adacalib.cells.terciles import assign_terciles
from adacalib.cells.value_effects import ValueEffects, fit_value_effects

REFERENCE_SCORE = "isotonic + level, slope and shape per value"


@dataclass(frozen=True)
class Reference:
    """What floors take for the truth: isotonic log-odds plus empirical-Bayes level, slope and bends of the value.

    A reference without slope and shape would leave out what it costs to learn them, and so promise a Field-RCE by
    terciles that no correct calibrator reaches where they differ. Where they do not, their τ is next to nothing, and
    they cost nothing.

    Attributes:
        isotonic: the function of all field values.
        effects: of each field value, on the isotonic log-odds.
    """

    isotonic: Isotonic
    effects: ValueEffects

    def predict(self, cells: LogitCells) -> Floats:
        """The probability of each cell, within [1e-7, 1 - 1e-7]."""
        logit = self.effects.apply(cells.field_value_id, compute_curve_logit(self.isotonic, cells.logit))
        return np.clip(expit(logit), PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)

    def refit(self, cells: LogitCells) -> Reference:
        """The effects fitted once more on other labels, isotonic function and every τ as they are.

        Args:
            cells: the cells of the fit, with other responses (a draw from the reference, say).
        """
        tau = (self.effects.tau_level, self.effects.tau_slope, *self.effects.tau_shape)
        curve_logit = compute_curve_logit(self.isotonic, cells.logit)
        effects = fit_value_effects(cells, curve_logit, shape=self.effects.shape_VK is not None, tau=tau)
        return replace(self, effects=effects)


def fit_reference(cells: LogitCells) -> Reference:
    """Fits the reference (algorithm.md step 2, on the isotonic function).

    Raises:
        NoCellsError: there are no cells.
    """
    isotonic = fit_isotonic(cells)
    return Reference(isotonic, fit_value_effects(cells, compute_curve_logit(isotonic, cells.logit), shape=True))


def compute_reference_levels(fit_cells: LogitCells, test_cells: LogitCells, draws: int, seed: int) -> ReferenceLevels:
    """Noise floor and attainable level of a field, if the reference's scores were the truth (algorithm.md part 3).

    The attainable level refits the reference's effects on labels drawn from it.

    Args:
        fit_cells: logit cells of train ∪ dev, which the reference is fitted on.
        test_cells: logit cells of the test split.
        draws: draws of the labels.
        seed: of the draws.
    """
    reference = fit_reference(fit_cells)
    terciles = assign_terciles(test_cells)
    on_fit, on_test = reference.predict(fit_cells), reference.predict(test_cells)

    def refit(response: Floats) -> Floats:
        return reference.refit(replace(fit_cells, response=response)).predict(test_cells)

    floors = compute_cell_noise_floors(test_cells, on_test, terciles)
    costs = compute_fitting_costs(fit_cells, test_cells, on_fit, on_test, refit, draws, seed, terciles)
    attainable = [
        None if floor is None or cost is None else floor + cost for floor, cost in zip(floors, costs, strict=True)
    ]
    return ReferenceLevels(
        field_rce_noise_floor=floors[0],
        field_rce_attainable=attainable[0],
        field_rce_terciles_noise_floor=floors[1],
        field_rce_terciles_attainable=attainable[1],
    )
