"""Drift-aware evidence: how much of a field value's past says anything about its future (algorithm.md, step 9).

The model. In block b of the days, the level of field value z is θ_z + δ·e_zb, with θ_z ~ N(0, τ_p²) what stays and
e_zb ~ N(0, 1), independent, what comes and goes; a shift c_b common to all values comes on top. What serving needs is
θ_z, and however many samples a block has, it is one noisy look at it. Around a first fit with level a_z and
probabilities p, and with I_zb = Σp(1 − p), the working response

    u_zb = Σ(y − p) − I_zb·c_b + I_zb·a_z

has mean I_zb·(θ_z + δ·e_zb) and, given that level, variance I_zb. So two blocks of one value share I·I′·τ_p², a block
with itself I²(τ_p² + δ²) + I: the moments that give τ_p and δ. And a block's estimate u/I of θ_z has variance
1/I + δ², that is 1 + δ²I times what its samples alone would say: the factor κ by which the evidence is discounted.

Shape letters: V field values (id 0 included), B time blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adacalib.cells.bin_bounds import TIE
from adacalib.cells.global_curve import GlobalCurve
from adacalib.cells.logit_cells import Floats, Ints, LogitCells, cells_from_columns, join_cells
from adacalib.cells.value_effects import TAU_LIMITS, ValueEffects, fit_value_effects

N_TIME_BLOCKS = 6
_N_ROUNDS = 6
_TAU_START = 0.3
_UNUSED_TAU = 1.0  # of a switched-off slope: any positive number


class DriftEvidenceError(ValueError):
    """The time blocks do not tell what stays from what drifts."""


@dataclass(frozen=True)
class DriftEvidence:
    """What the time blocks say about the levels of the field values.

    Attributes:
        kappa_V: share of a value's evidence that counts, in (0, 1]; 1 for id 0, for ids without cells, without drift.
        tau_p: standard deviation of the lasting levels θ, log-odds, within `value_effects.TAU_LIMITS`.
        delta: standard deviation of what a block adds to them, log-odds, at least 0.
        common_shift_B: shift of all field values in each block, log-odds.
    """

    kappa_V: Floats
    tau_p: float
    delta: float
    common_shift_B: Floats


def assign_time_blocks(day: Ints, weight: Floats, n_blocks: int = N_TIME_BLOCKS) -> Ints:
    """Assigns days to consecutive blocks of about equal weight: floor(n_blocks · mid-rank of the day).

    A day lies in one block as a whole. Blocks are numbered from 0 without gaps: with fewer days than `n_blocks`, or
    with a day heavier than a block, there are fewer of them.

    Args:
        day: number of the day of each row, from any origin; shape (n_rows,).
        weight: weight of each row (samples); shape (n_rows,).
        n_blocks: number of blocks wanted, at least 1.

    Returns:
        Block of each row; shape (n_rows,).

    Raises:
        DriftEvidenceError: there are no rows.
    """
    if not len(day):
        raise DriftEvidenceError(
            "0 rows with a day: time blocks need dated logit cells; without dates leave step 9 off"
        )
    days, day_index = np.unique(day, return_inverse=True)
    day_weight = np.bincount(day_index, weights=weight, minlength=len(days))
    mid_rank = (np.cumsum(day_weight) - day_weight / 2) / day_weight.sum()
    wanted = np.minimum((n_blocks * mid_rank + TIE).astype(np.int64), n_blocks - 1)
    block: Ints = np.unique(wanted, return_inverse=True)[1][day_index]
    return block


def split_by_time_block(
    columns: Mapping[str, npt.NDArray[np.generic]], day: Ints, n_values: int, n_blocks: int = N_TIME_BLOCKS
) -> list[LogitCells]:
    """Cells of each time block, in the order of time.

    Args:
        columns: one field's rows of the logit_cells table, as for `cells_from_columns`.
        day: number of the day of each row, from any origin.
        n_values: number of dense ids, id 0 included.
        n_blocks: see `assign_time_blocks`.

    Raises:
        DriftEvidenceError: there are no rows.
    """
    block = assign_time_blocks(day, columns["sum_weight"].astype(np.float64), n_blocks)
    return [
        cells_from_columns({name: values[block == b] for name, values in columns.items()}, n_values)
        for b in range(int(block.max()) + 1)
    ]


def discount_cells(cells: LogitCells, kappa_V: Floats) -> LogitCells:
    """The cells with weight and response of every field value times its κ; numbers of rows stay as they are.

    Args:
        cells: logit cells.
        kappa_V: positive factor per field value id; shape (n_values,).

    Raises:
        ValueError: a factor is missing, not positive or not finite.
    """
    if len(kappa_V) != cells.n_values or not np.all(np.isfinite(kappa_V) & (kappa_V > 0)):
        raise ValueError(
            f"{len(kappa_V)} factors for {cells.n_values} field value ids, smallest "
            f"{np.min(kappa_V, initial=np.inf):g}: each id needs one positive finite factor; 1 leaves a field value "
            "as it is"
        )
    kappa = kappa_V[cells.field_value_id]
    return replace(cells, weight=cells.weight * kappa, response=cells.response * kappa)


def estimate_drift(blocks: Sequence[LogitCells], fitted_logits: Sequence[Floats], level_V: Floats) -> DriftEvidence:
    """Estimates τ_p, δ and κ by moments of the working responses, 6 rounds (algorithm.md step 9).

    With w = 1/(1 + I(τ_p² + δ²)), which weighs each block by what it says:
    τ_p² = Σ_z[(Σ_b uw)² − Σ_b(uw)²] / Σ_z[(Σ_b Iw)² − Σ_b(Iw)²], what two different blocks of a value share;
    δ² = max(Σ(u² − I)w² / ΣI²w² − τ_p², 0); κ_z = [Σ_b I/(1 + δ²I)] / Σ_b I.
    The common shift of a block is Σ v·(Σ(y − p)) / Σ v·I over its field values, v = 1/(1 + δ²I), so that under drift
    no large value passes for the common shift.

    τ_p is kept within TAU_LIMITS: at the lower one nothing of the levels lasts from block to block.

    Args:
        blocks: cells of each time block, same ids; cells of id 0 take no part.
        fitted_logits: η of the first fit for each cell of each block, log-odds, block shifts not included.
        level_V: a_z, the levels in η less their mean; shape (n_values,).

    Raises:
        DriftEvidenceError: no field value has samples in two blocks.
    """
    information_VB, residual_VB = _sum_blocks(blocks, fitted_logits)
    in_blocks_V = np.sum(information_VB > 0, axis=1)
    if not np.any(in_blocks_V > 1):
        raise DriftEvidenceError(
            f"{len(blocks)} time blocks, and no field value has samples in two of them: what lasts cannot be told from "
            "what drifts; give more days, or leave step 9 off"
        )
    tau_squared, delta_squared = _TAU_START**2, 0.0
    for _ in range(_N_ROUNDS):
        trust_VB = 1 / (1 + information_VB * delta_squared)
        # a block without any cell of a known value has shift 0, and nothing to shift
        evidence_B = np.maximum(np.sum(trust_VB * information_VB, axis=0), np.finfo(np.float64).tiny)
        common_shift_B = np.sum(trust_VB * residual_VB, axis=0) / evidence_B
        working_VB = residual_VB + information_VB * (level_V[:, None] - common_shift_B)
        tau_squared, delta_squared = _update_variances(working_VB, information_VB, tau_squared, delta_squared)
    total_V = information_VB.sum(axis=1)
    kept_V = np.sum(information_VB / (1 + delta_squared * information_VB), axis=1)
    kappa_V = np.divide(kept_V, total_V, out=np.ones_like(total_V), where=total_V > 0)
    return DriftEvidence(kappa_V, float(np.sqrt(tau_squared)), float(np.sqrt(delta_squared)), common_shift_B)


def fit_drifting_effects(
    blocks: Sequence[LogitCells], curve: GlobalCurve, *, slope: bool = True, shape: bool = False
) -> tuple[ValueEffects, DriftEvidence]:
    """Fits the value effects twice: plain, then on the discounted cells with τ_level = τ_p and the first τ_slope.

    Mean and scale of the standardised log-odds are those of the discounted cells. Shifts per bin
    (step 3) belong on the cells as they are: κ is about levels, and it would discount what is known of the shape too.

    Args:
        blocks: cells of each time block, same ids, at least one block.
        curve: global curve, fitted on all blocks' cells.
        slope: whether field values have a slope of their own.
        shape: whether their functions bend in ways of their own.

    Raises:
        NoCellsError: there are no cells.
        DriftEvidenceError: no field value has samples in two blocks.
    """
    cells = join_cells(blocks)
    curve_logit = curve.evaluate(cells.logit)
    first = fit_value_effects(cells, curve_logit, slope=slope, shape=shape)
    fitted_logits = [first.apply(block.field_value_id, curve.evaluate(block.logit)) for block in blocks]
    drift = estimate_drift(blocks, fitted_logits, first.level_V - first.mean_level)
    return fit_discounted_effects(cells, curve_logit, first, drift), drift


def fit_discounted_effects(
    cells: LogitCells, curve_logit: Floats, first: ValueEffects, drift: DriftEvidence
) -> ValueEffects:
    """The effects on the discounted cells, with τ_level = τ_p and the other τ of a first fit on the cells as they are.

    Args:
        cells: logit cells as they are.
        curve_logit: l of each cell, log-odds.
        first: the first fit, with level; it decides whether there are slopes and bends.
        drift: how much of the evidence counts.
    """
    has_slope, has_shape = first.tau_slope > 0, first.shape_VK is not None
    tau = (drift.tau_p, first.tau_slope if has_slope else _UNUSED_TAU, *first.tau_shape)
    discounted = discount_cells(cells, drift.kappa_V)
    return fit_value_effects(discounted, curve_logit, slope=has_slope, shape=has_shape, tau=tau)


def _sum_blocks(blocks: Sequence[LogitCells], fitted_logits: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(I, Σ(y − p)) per field value and block; row 0 is 0: unseen values are not one value."""
    information, residual = [], []
    for cells, logit in zip(blocks, fitted_logits, strict=True):
        probability = expit(logit)
        information.append(cells.sum_by_value(cells.weight * probability * (1 - probability)))
        residual.append(cells.sum_by_value(cells.response - cells.weight * probability))
    information_VB, residual_VB = np.stack(information, axis=1), np.stack(residual, axis=1)
    information_VB[0], residual_VB[0] = 0.0, 0.0
    return information_VB, residual_VB


def _update_variances(
    working_VB: Floats, information_VB: Floats, tau_squared: float, delta_squared: float
) -> tuple[float, float]:
    weight_VB = 1 / (1 + information_VB * (tau_squared + delta_squared))
    shared = _sum_over_pairs(working_VB * weight_VB) / _sum_over_pairs(information_VB * weight_VB)
    tau_squared = float(np.clip(shared, TAU_LIMITS[0] ** 2, TAU_LIMITS[1] ** 2))
    own = np.sum((working_VB**2 - information_VB) * weight_VB**2) / np.sum((information_VB * weight_VB) ** 2)
    return tau_squared, max(float(own) - tau_squared, 0.0)


def _sum_over_pairs(values_VB: Floats) -> float:
    """Σ over field values and ordered pairs of different blocks of the products."""
    # per field value first: one with a single block gives exactly 0
    return float(np.sum(values_VB.sum(axis=1) ** 2 - np.sum(values_VB**2, axis=1)))
