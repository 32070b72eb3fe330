"""Steps 1 to 3 on all cells and, for the auxiliary network, once per fold on the cells of the other folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from adacalib.cells.bin_bounds import BinBounds, NoCellsError
from adacalib.cells.functions import BinFunctions
from adacalib.cells.logit_cells import Floats, LogitCells, cells_from_columns, compute_mean_label, join_cells
from adacalib.cells.robust import HELD_OUT_SHARE, HarmChoice, choose_without_harm, fit_robust
from adacalib.cells.thinning import split_cells

N_DEALT_FOLDS = 4
"""Folds that are dealt from cells where the rows have none."""

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class FieldFit:
    """The field part of robust mode, before any network.

    Attributes:
        functions: fitted on all cells; what serving uses.
        fold_functions: per fold, fitted on the cells of the other folds; empty where no folds were asked for.
        level_V: a_z of step 2, log-odds; 0 for id 0.
        mean_logit: log-odds of the mean label.
        chosen: whether held-out loss prefers steps 1 to 3 or the global curve alone.
        diagnostics: plain numbers for the report.
    """

    functions: BinFunctions
    fold_functions: tuple[BinFunctions, ...]
    level_V: Floats
    mean_logit: float
    chosen: Literal["global_curve", "robust"]
    diagnostics: dict[str, Any]


class RobustParts(TypedDict):
    """Which of steps 1 to 3 act; see `fit_robust`."""

    value_level: bool
    value_slope: bool
    bin_shrinkage: bool


@dataclass(frozen=True)
class RobustSwitches:
    """The parts of steps 1 to 3 and 8; see CalibratorConfig."""

    value_level: bool = True
    value_slope: bool = True
    bin_shrinkage: bool = True
    do_no_harm: bool = True

    def parts(self) -> RobustParts:
        """The switches of steps 1 to 3, as keyword arguments of `fit_robust`."""
        return {
            "value_level": self.value_level,
            "value_slope": self.value_slope,
            "bin_shrinkage": self.bin_shrinkage,
        }


def deal_folds(columns: Columns, n_values: int, n_folds: int, seed: int) -> tuple[LogitCells, ...]:
    """The cells of each fold: the table's own folds, or, where it has one, N_DEALT_FOLDS dealt from the cells.

    Rows of one cell are exchangeable, so dealing them at random is as good as a fold by a hash of the row; only a
    network that streams rows needs to know which row is in which fold.

    Raises:
        NoCellsError: one fold has all cells, so nothing is left to fit its functions on.
    """
    if n_folds == 1:
        cells = cells_from_columns(columns, n_values)
        return split_cells(cells, (1 / N_DEALT_FOLDS,) * N_DEALT_FOLDS, seed)
    used = np.unique(columns["fold"])
    if len(used) == 1:
        raise NoCellsError(
            f"all logit cells are in fold {used[0]} of {n_folds}: the table was built without folds, or has too few "
            "rows for them; run from build_logit_cells again, or set calibrator.auxiliary.out_of_fold=false"
        )
    return tuple(
        cells_from_columns({name: values[columns["fold"] == fold] for name, values in columns.items()}, n_values)
        for fold in range(n_folds)
    )


def leave_fold_out(folds: Sequence[LogitCells], fold: int) -> LogitCells:
    """The cells of all folds but one."""
    return join_cells([cells for place, cells in enumerate(folds) if place != fold])


def fit_field_part(
    columns: Columns,
    n_values: int,
    folds: Sequence[LogitCells],
    bounds: BinBounds,
    switches: RobustSwitches,
    seed: int,
) -> FieldFit:
    """Fits steps 1 to 3 in full and per fold, after the choice of step 8.

    Args:
        columns: of the logit_cells table, one field; `date` (days as integers) where the run has dates.
        n_values: number of dense ids, id 0 included.
        folds: cells of each fold (`deal_folds`); empty for the full fit only.
        bounds: bounds of every field value. They depend on logits only, never on labels, so all folds share them.
        seed: of the inner split of step 8.

    Raises:
        NoCellsError: there are no cells, or a fold holds all of them.
    """
    cells = cells_from_columns(columns, n_values)
    choice = _choose(columns, cells, bounds, switches, seed)
    if choice is not None and choice.chosen == "global_curve":
        switches = replace(switches, value_level=False, value_slope=False, bin_shrinkage=False)
    parts = switches.parts()
    full = fit_robust(cells, bounds, **parts)
    others = (leave_fold_out(folds, fold) for fold in range(len(folds)))
    mean_label = compute_mean_label(cells.response.sum(), cells.weight.sum())
    return FieldFit(
        functions=full.functions,
        fold_functions=tuple(fit_robust(other, bounds, **parts).functions for other in others),
        level_V=full.effects.level_V,
        mean_logit=float(np.log(mean_label) - np.log1p(-mean_label)),
        chosen="robust" if choice is None else choice.chosen,
        diagnostics=full.diagnostics
        | {
            "n_cells": len(cells),
            "do_no_harm": choice is not None,
            "held_out_loss_global_curve": None if choice is None else choice.loss_global_curve,
            "held_out_loss_robust": None if choice is None else choice.loss_robust,
        },
    )


def split_by_time(columns: Columns, share: float) -> tuple[Columns, Columns] | None:
    """Cells of the earliest days, up to the day in which `share` of the samples is reached, and those of later days.

    None where there is only one day.
    """
    days, place = np.unique(columns["date"], return_inverse=True)
    if len(days) < 2:
        return None
    reached = np.cumsum(np.bincount(place, weights=columns["n_samples"]))
    last = min(int(np.searchsorted(reached, share * reached[-1])), len(days) - 2)
    early = place <= last
    return {n: v[early] for n, v in columns.items()}, {n: v[~early] for n, v in columns.items()}


def _choose(
    columns: Columns,
    cells: LogitCells,
    bounds: BinBounds,
    switches: RobustSwitches,
    seed: int,
) -> HarmChoice | None:
    parts = switches.parts()
    if not switches.do_no_harm or not any(parts.values()):
        return None
    n_bins = bounds.bin_bounds_VJ.shape[1] - 1
    by_time = split_by_time(columns, 1 - HELD_OUT_SHARE) if "date" in columns else None
    if by_time is None:
        return choose_without_harm(cells, n_bins, seed=seed, **parts)
    early, late = (cells_from_columns(part, cells.n_values) for part in by_time)
    return choose_without_harm(early, n_bins, seed=seed, later=late, **parts)
