"""Isotonic + offset in the form that the auxiliary network is trained on: the fair opponent of AdaCalib's functions.

With the same network and the same re-level behind it, what is left of a difference is the functions'.
Shape letters: V field values, R = 1 curve, J knots.
"""

from __future__ import annotations

import numpy as np

from adacalib.baselines.isotonic_offset import IsotonicOffset, fit_isotonic_offset
from adacalib.cells.field_part import FieldFit
from adacalib.cells.functions import BinFunctions
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, LogitCells, compute_mean_label


def fit_isotonic_field_part(cells: LogitCells) -> FieldFit:
    """Fits isotonic + offset.

    Args:
        cells: logit cells of train ∪ dev.

    Raises:
        NoCellsError: there are no cells.
    """
    full = fit_isotonic_offset(cells)
    mean_label = compute_mean_label(cells.response.sum(), cells.weight.sum())
    return FieldFit(
        functions=build_isotonic_functions(full),
        level_V=full.level_V,
        parent_level_P=np.zeros(1),
        weight_V=cells.sum_by_value(cells.weight),
        mean_logit=float(np.log(mean_label) - np.log1p(-mean_label)),
        chosen="robust",
        diagnostics={"tau_level": full.tau, "n_cells": len(cells), "n_curve_knots": len(full.isotonic.rate_knots)},
    )


def build_isotonic_functions(fitted: IsotonicOffset) -> BinFunctions:
    """One curve for all field values, J knots as isotonic has them, raised by each value's level.

    Linear in log-odds between two blocks, where `IsotonicOffset.predict` is linear in probability; a gap between
    blocks is a cell or two wide, so the two differ little, and not at all on a block.
    """
    isotonic = fitted.isotonic
    bounds_J, first_J = np.unique(isotonic.logit_knots, return_index=True)
    rate_J = np.clip(isotonic.rate_knots[first_J], isotonic.lowest_rate, isotonic.highest_rate)
    knots_J = np.log(rate_J) - np.log1p(-rate_J)
    if len(bounds_J) == 1:  # one cell only: a flat bin of its width
        bounds_J, knots_J = bounds_J[0] + np.array([0.0, 1 / CELLS_PER_LOGIT]), np.repeat(knots_J, 2)
    return BinFunctions(
        bin_bounds_RJ=bounds_J[None],
        knots_RJ=knots_J[None],
        n_bins_R=np.array([len(bounds_J) - 1]),
        slope_lower_R=np.zeros(1),
        slope_upper_R=np.zeros(1),
        row_V=np.zeros(len(fitted.level_V), np.int64),
        shift_V=fitted.level_V,
    )
