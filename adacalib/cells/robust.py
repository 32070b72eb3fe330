"""Robust mode without a network: algorithm.md part 2, steps 1 to 3, and the choice of step 8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adacalib.cells.bin_bounds import BinBounds, compute_bin_bounds
from adacalib.cells.forward_slope import ForwardSlope, fit_forward_slope
from adacalib.cells.functions import BinFunctions, build_functions, interpolate
from adacalib.cells.global_curve import GlobalCurve, fit_global_curve
from adacalib.cells.hierarchy import fit_hierarchical_effects
from adacalib.cells.knots import compute_bin_shifts, make_monotone, spread_to_bounds
from adacalib.cells.logit_cells import Floats, Ints, LogitCells
from adacalib.cells.thinning import split_cells
from adacalib.cells.value_effects import ValueEffects, fit_value_effects

HELD_OUT_SHARE = 0.3
_LEAST_FALL = 1e-9
"""Log-odds; less than this is rounding."""


@dataclass(frozen=True)
class RobustFit:
    """The fit of steps 1 to 3.

    Attributes:
        curve: global curve.
        effects: level and slope of every field value; the level holds the parent's.
        parent_level_V: the parent's part of each level, log-odds; 0 without parents.
        parent_level_P: level of each parent, log-odds, parent 0 (none) 0; that one alone without parents.
        functions: what serving needs.
        diagnostics: plain numbers: tau_level, tau_slope, tau_shape (of all bends together; None without them),
            tau_parent (None without parents), bin_strength (None without bin shifts),
            n_curve_knots, pooled_share (field values, id 0 included, whose knots fell somewhere: pooled with
            hard_monotone).
    """

    curve: GlobalCurve
    effects: ValueEffects
    parent_level_V: Floats
    parent_level_P: Floats
    functions: BinFunctions
    diagnostics: dict[str, float | None]


@dataclass(frozen=True)
class HarmChoice:
    """Which of two calibrators held-out samples prefer.

    Attributes:
        chosen: the one with the smaller loss; the global curve in a tie, or when nothing is held out.
        loss_global_curve: mean held-out cross-entropy per unit of weight; None when one side of the split is empty.
        loss_robust: the same for steps 1 to 3.
        forward: the forward slopes of (global curve, steps 1 to 3); None where what was held out is not later.
    """

    chosen: Literal["global_curve", "robust"]
    loss_global_curve: float | None
    loss_robust: float | None
    forward: tuple[ForwardSlope, ForwardSlope] | None = None


def fit_robust(
    cells: LogitCells,
    bounds: BinBounds,
    *,
    value_level: bool = True,
    value_slope: bool = True,
    value_shape: bool = True,
    bin_shrinkage: bool = True,
    hard_monotone: bool = True,
    parent_V: Ints | None = None,
) -> RobustFit:
    """Fits global curve, value effects and knots.

    With level, slope, shape and bin shrinkage off the functions are the global curve at the value's bounds.

    Args:
        cells: logit cells to fit on.
        bounds: bounds of every field value.
        value_level: empirical-Bayes level per field value.
        value_slope: empirical-Bayes slope per field value.
        value_shape: empirical-Bayes bends per field value, smooth, where bin shifts are free in every bin.
        bin_shrinkage: shrunken shift per bin; without it a knot is η at its bound.
        hard_monotone: without it knots stay as they are, and a function may fall where its bins say so.
        parent_V: dense id of each field value's parent, 0 for none (step 10); None where the field has no parent field.

    Raises:
        NoCellsError: there are no cells.
    """
    curve = fit_global_curve(cells)
    curve_logit = curve.evaluate(cells.logit)
    effects, parent_level_P, tau_parent = _fit_effects(
        cells, curve_logit, value_level, value_slope, value_shape, parent_V
    )
    has_parents = parent_V is not None and len(parent_level_P) > 1
    knots_VJ = effects.apply(np.arange(cells.n_values)[:, None], curve.evaluate(bounds.filled_VJ))
    strength = None
    if bin_shrinkage:
        shifts = compute_bin_shifts(cells, bounds, effects.apply(cells.field_value_id, curve_logit))
        knots_VJ, strength = knots_VJ + spread_to_bounds(shifts), shifts.strength
    inside_VK = np.arange(knots_VJ.shape[1] - 1) < bounds.n_bins_V[:, None]
    falls_V = np.any((np.diff(knots_VJ, axis=1) < -_LEAST_FALL) & inside_VK, axis=1)
    return RobustFit(
        curve=curve,
        effects=effects,
        parent_level_V=parent_level_P[parent_V] if has_parents else np.zeros(cells.n_values),
        parent_level_P=parent_level_P,
        functions=build_functions(bounds, make_monotone(knots_VJ, bounds) if hard_monotone else knots_VJ),
        diagnostics={
            "tau_level": effects.tau_level,
            "tau_parent": tau_parent,
            "tau_slope": effects.tau_slope,
            "tau_shape": float(np.sqrt(np.sum(np.square(effects.tau_shape)))) if effects.tau_shape else None,
            "bin_strength": strength,
            "n_curve_knots": float(len(curve.logit_knots)),
            "pooled_share": float(np.mean(falls_V)),
        },
    )


def _fit_effects(
    cells: LogitCells, curve_logit: Floats, level: bool, slope: bool, shape: bool, parent_V: Ints | None
) -> tuple[ValueEffects, Floats, float | None]:
    """(effects, level of each parent, τ of the parents): steps 2 and 10."""
    if not level or parent_V is None:
        return fit_value_effects(cells, curve_logit, level=level, slope=slope, shape=shape), np.zeros(1), None
    found = fit_hierarchical_effects(cells, curve_logit, parent_V, slope=slope, shape=shape)
    return found.effects, found.parent_level_P, found.tau_parent


def choose_without_harm(
    cells: LogitCells,
    n_bins: int,
    *,
    seed: int,
    later: LogitCells | None = None,
    value_level: bool = True,
    value_slope: bool = True,
    value_shape: bool = True,
    bin_shrinkage: bool = True,
    hard_monotone: bool = True,
    parent_V: Ints | None = None,
) -> HarmChoice:
    """Chooses between the global curve and robust mode by mean held-out log-loss (algorithm.md step 8).

    Args:
        cells: cells of train ∪ dev, split 70/30 at random here; with `later`, the earlier days' cells.
        n_bins: K of the inner fits.
        seed: of the split.
        later: cells of the held-out later days, with the same ids.
        value_level: see `fit_robust`.
        value_slope: see `fit_robust`.
        value_shape: see `fit_robust`.
        bin_shrinkage: see `fit_robust`.
        hard_monotone: see `fit_robust`.
        parent_V: see `fit_robust`.
    """
    fitted, held_out = (
        split_cells(cells, (1 - HELD_OUT_SHARE, HELD_OUT_SHARE), seed) if later is None else (cells, later)
    )
    if not len(fitted) or not len(held_out):
        return HarmChoice("global_curve", None, None)
    bounds = compute_bin_bounds(fitted, n_bins)
    plain = fit_robust(fitted, bounds, value_level=False, value_slope=False, value_shape=False, bin_shrinkage=False)
    robust = fit_robust(
        fitted,
        bounds,
        value_level=value_level,
        value_slope=value_slope,
        value_shape=value_shape,
        bin_shrinkage=bin_shrinkage,
        hard_monotone=hard_monotone,
        parent_V=parent_V,
    )
    logits = [interpolate(fit.functions, held_out.field_value_id, held_out.logit) for fit in (plain, robust)]
    losses = [compute_log_loss(held_out, logit) for logit in logits]
    forward = None
    if later is not None:
        forward = fit_forward_slope(later, logits[0]), fit_forward_slope(later, logits[1])
    return HarmChoice("robust" if losses[1] < losses[0] else "global_curve", losses[0], losses[1], forward)


def compute_log_loss(cells: LogitCells, logit: Floats) -> float:
    """Mean cross-entropy per unit of weight, in nats, of calibrated log-odds given per cell."""
    losses = cells.weight * np.logaddexp(0.0, logit) - cells.response * logit
    return float(np.sum(losses) / np.sum(cells.weight))
