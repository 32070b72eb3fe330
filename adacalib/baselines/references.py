"""The reference that floors and attainable levels are computed from: isotonic + empirical-Bayes offset."""

from __future__ import annotations

from dataclasses import replace

from adacalib.baselines.isotonic_offset import IsotonicOffset
from adacalib.cells.floors import compute_attainable, compute_cell_noise_floors
from adacalib.cells.logit_cells import Floats, LogitCells
from adacalib.cells.metrics import ReferenceLevels
from adacalib.cells.terciles import assign_terciles

REFERENCE_SCORE = "isotonic_offset"


def compute_reference_levels(
    reference: IsotonicOffset, fit_cells: LogitCells, test_cells: LogitCells, draws: int, seed: int
) -> ReferenceLevels:
    """Noise floor and attainable level of a field, if the reference's scores were the truth (algorithm.md part 3).

    The attainable level refits the reference's levels, its isotonic function and τ fixed, on labels drawn from it.

    Args:
        reference: fitted on fit_cells.
        fit_cells: logit cells of train ∪ dev.
        test_cells: logit cells of the test split.
        draws: draws of the labels.
        seed: of the draws.
    """
    terciles = assign_terciles(test_cells)
    on_fit = reference.predict(fit_cells.logit, fit_cells.field_value_id)
    on_test = reference.predict(test_cells.logit, test_cells.field_value_id)

    def refit(response: Floats) -> Floats:
        refitted = reference.refit_levels(replace(fit_cells, response=response))
        return refitted.predict(test_cells.logit, test_cells.field_value_id)

    floor, terciles_floor = compute_cell_noise_floors(test_cells, on_test, terciles)
    attainable, terciles_attainable = compute_attainable(
        fit_cells, test_cells, on_fit, on_test, refit, draws, seed, terciles
    )
    return ReferenceLevels(
        field_rce_noise_floor=floor,
        field_rce_attainable=attainable,
        field_rce_terciles_noise_floor=terciles_floor,
        field_rce_terciles_attainable=terciles_attainable,
    )
