"""Steps 1 to 3 and 8 of robust mode, and the forward slope: all that is fitted on logit cells before any network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import numpy as np

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.forward_slope import ForwardSlope
from adacalib.cells.functions import BinFunctions
from adacalib.cells.logit_cells import Floats, Ints, LogitCells, cells_from_columns, compute_mean_label
from adacalib.cells.robust import HELD_OUT_SHARE, HarmChoice, choose_without_harm, fit_robust
from adacalib.cells.time_periods import Columns, split_by_time


@dataclass(frozen=True)
class FieldFit:
    """The field part of robust mode, before any network.

    Attributes:
        functions: what serving uses, and what the network is trained on.
        level_V: a_z of step 2 less the level of the value's parent, log-odds: what the re-level fits once more.
        parent_level_P: log-odds that an unseen value gets from its parent, parent 0 (none) 0; that one alone where
            parents play no part.
        weight_V: sum of sample weights of each dense id.
        mean_logit: log-odds of the mean label.
        chosen: whether held-out loss prefers steps 1 to 3 or the global curve alone.
        diagnostics: plain numbers for the report.
        forward_slope: what calibrated log-odds are multiplied by in the end; 1 where there are no later days.
    """

    functions: BinFunctions
    level_V: Floats
    parent_level_P: Floats
    weight_V: Floats
    mean_logit: float
    chosen: Literal["global_curve", "robust"]
    diagnostics: dict[str, Any]
    forward_slope: float = 1.0


class RobustParts(TypedDict):
    """Which of steps 1 to 3 act; see `fit_robust`."""

    value_level: bool
    value_slope: bool
    value_shape: bool
    bin_shrinkage: bool
    hard_monotone: bool


@dataclass(frozen=True)
class RobustSwitches:
    """The parts of steps 1 to 3 and 8, and the forward slope; see CalibratorConfig."""

    value_level: bool = True
    value_slope: bool = True
    value_shape: bool = True
    bin_shrinkage: bool = True
    hard_monotone: bool = True
    do_no_harm: bool = True
    forward_slope: bool = True

    @property
    def has_choice(self) -> bool:
        """Whether step 8 has two calibrators to choose from, and may."""
        has_effects = self.value_level or self.value_slope or self.value_shape or self.bin_shrinkage
        return self.do_no_harm and has_effects

    def parts(self) -> RobustParts:
        """The switches of steps 1 to 3, as keyword arguments of `fit_robust`."""
        return {
            "value_level": self.value_level,
            "value_slope": self.value_slope,
            "value_shape": self.value_shape,
            "bin_shrinkage": self.bin_shrinkage,
            "hard_monotone": self.hard_monotone,
        }


def fit_field_part(
    columns: Columns,
    n_values: int,
    bounds: BinBounds,
    switches: RobustSwitches,
    seed: int,
    parent_V: Ints | None = None,
) -> FieldFit:
    """Fits steps 1 to 3 after the choice of step 8.

    Args:
        columns: of the logit_cells table, one field; `date` (days as integers) where the run has dates.
        n_values: number of dense ids, id 0 included.
        bounds: bounds of every field value.
        seed: of the inner split of step 8.
        parent_V: dense id of each field value's parent, 0 for none.

    Raises:
        NoCellsError: there are no cells.
    """
    cells = cells_from_columns(columns, n_values)
    chosen, forward_slope, told = _judge(_ask_held_out(columns, cells, bounds, switches, seed, parent_V), switches)
    if chosen == "global_curve":
        switches = replace(switches, value_level=False, value_slope=False, value_shape=False, bin_shrinkage=False)
    full = fit_robust(cells, bounds, parent_V=parent_V, **switches.parts())
    mean_label = compute_mean_label(cells.response.sum(), cells.weight.sum())
    return FieldFit(
        functions=full.functions,
        level_V=full.effects.level_V - full.parent_level_V,
        parent_level_P=full.parent_level_P,
        weight_V=cells.sum_by_value(cells.weight),
        mean_logit=float(np.log(mean_label) - np.log1p(-mean_label)),
        chosen=chosen,
        diagnostics=full.diagnostics | {"n_cells": len(cells)} | told,
        forward_slope=forward_slope,
    )


def _judge(
    choice: HarmChoice | None, switches: RobustSwitches
) -> tuple[Literal["global_curve", "robust"], float, dict[str, Any]]:
    """(the field part to take, its forward slope, figures for the report)."""
    decides = choice if switches.has_choice else None
    chosen = decides.chosen if decides is not None else "robust"
    forward = ForwardSlope(1.0, None, None)
    if switches.forward_slope and choice is not None and choice.forward is not None:
        forward = choice.forward[0 if chosen == "global_curve" else 1]
    told = {
        "do_no_harm": decides is not None,
        "held_out_loss_global_curve": decides.loss_global_curve if decides is not None else None,
        "held_out_loss_robust": decides.loss_robust if decides is not None else None,
        "forward_slope": forward.slope,
        "forward_slope_measured": forward.measured,
        "forward_slope_error": forward.standard_error,
    }
    return chosen, forward.slope, told


def _ask_held_out(
    columns: Columns,
    cells: LogitCells,
    bounds: BinBounds,
    switches: RobustSwitches,
    seed: int,
    parent_V: Ints | None,
) -> HarmChoice | None:
    """What held-out samples say of a fit to the others; None where nobody asks them."""
    parts, has_choice = switches.parts(), switches.has_choice
    n_bins = bounds.bin_bounds_VJ.shape[1] - 1
    by_time = split_by_time(columns, 1 - HELD_OUT_SHARE) if "date" in columns else None
    if by_time is None:
        return choose_without_harm(cells, n_bins, seed=seed, parent_V=parent_V, **parts) if has_choice else None
    if not has_choice and not switches.forward_slope:
        return None
    early, late = (cells_from_columns(part, cells.n_values) for part in by_time)
    return choose_without_harm(early, n_bins, seed=seed, later=late, parent_V=parent_V, **parts)
