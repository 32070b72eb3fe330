"""Value effects in two storeys: a field value's level is its parent's plus its own deviation (algorithm.md, step 10).

The model. level_z = m + P_parent(z) + d_z with P ~ N(0, τ_parent²) and d_z ~ N(0, τ_value²), m the mean of the plain
levels; slopes have no parent. A value with many samples gets its own level, one with few falls to its parent's, a
parent with few to m. What follows is about l + m.

A parent sees a value as one noisy look at its level. With I_z the information on the value's level and r_z = Σ(y − p)
at the present fit, x_z = r_z/I_z + d_z + P has mean P_true and variance 1/I_z + τ_value². Hence its weight in the
parent's level is κ_z·I_z, κ_z = 1/(1 + I_z·τ_value²), and

    P ← V_P·Σ_z κ_z·I_z·x_z,  V_P = 1/(Σ_z κ_z·I_z + 1/τ_parent²);
    d_z ← τ_value²·κ_z·I_z·(x_z − P),  V_d = τ_value²·κ_z + (τ_value²·κ_z·I_z)²·V_P.

This is a Newton step on parents and deviations at once; alternating between them without κ hardly moves, because the
deviations have already explained what a parent should. The variances are those of the joint posterior, so that both
priors get τ² ← Σθ²/Σ(1 − V/τ²) as in `value_effects`; without the second term of V_d, τ_value would collapse where
parents have only a few values.

Shape letters: V field values (id 0 included), P parents (0: none).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from adacalib.cells.logit_cells import Floats, Ints, LogitCells
from adacalib.cells.value_effects import TAU_LIMITS, ValueEffects, fit_value_effects

_MAX_ROUNDS = 30
_SETTLED_TAU = 0.01
_SETTLED_LEVEL = 1e-4
_MAX_PARENT_STEP = 2.0
_UNUSED_TAU = 1.0  # of a switched-off slope: any positive number


class ParentError(ValueError):
    """Parents that do not fit the field values."""


@dataclass(frozen=True)
class HierarchicalEffects:
    """Value effects whose levels lean on parents.

    Attributes:
        effects: the total: `level_V` is mean plus parent's level plus deviation, and an id without cells has its
            parent's level; `tau_level` is τ_value; everything else as in `ValueEffects`.
        parent_level_P: level of each parent, log-odds; 0 for parent 0 (none) and for parents without cells.
        tau_parent: standard deviation of the parents' prior, log-odds; 0 when the level is switched off.
        tau_value: standard deviation of the deviations' prior, log-odds; the same.
    """

    effects: ValueEffects
    parent_level_P: Floats
    tau_parent: float
    tau_value: float


def fit_hierarchical_effects(
    cells: LogitCells,
    curve_logit: Floats,
    parent_V: Ints,
    *,
    level: bool = True,
    slope: bool = True,
    shape: bool = False,
) -> HierarchicalEffects:
    """Fits levels of parents and values, and slopes of values, each under a normal prior by empirical Bayes.

    Each round fits the values given the parents with `fit_value_effects` (l + P in place of l), then takes the step
    of the module's docstring; at most 30 rounds, until both τ change by less than 1 % and no parent by 1e-4. τ_slope
    is that of the plain effects.

    A value without parent (parent 0) shrinks to the mean. Without a parent effect τ_parent ends at or near its lower
    limit, and the result is close to the plain effects. Where every parent has a single value, the two storeys cannot
    be told apart, and their sum is close to the plain level.

    Args:
        cells: logit cells; cells of id 0 take no part, except in mean and scale.
        curve_logit: l of each cell, log-odds (the global curve at the cell's mean logit, say).
        parent_V: dense id of each field value's parent, 0 for none; shape (n_values,).
        level: whether parents and values have levels of their own; without them parents play no part.
        slope: whether values have a slope of their own (along l plus the parent's level).
        shape: whether their functions bend in ways of their own; the bends are those of the plain effects.

    Raises:
        NoCellsError: there are no cells.
        ParentError: `parent_V` is not one whole number ≥ 0 per field value id, or id 0 has a parent.
        ValueError: an l is not finite.
    """
    _check_parents(cells, parent_V)
    plain = fit_value_effects(cells, curve_logit, level=level, slope=slope, shape=shape)
    parent_level_P = np.zeros(int(parent_V.max()) + 1)
    if not level:
        return HierarchicalEffects(plain, parent_level_P, 0.0, 0.0)
    # parents and values deviate from the mean of the levels, which is what an unseen value has
    base_logit, bend = curve_logit + plain.mean_level, plain.compute_shape(cells.field_value_id, curve_logit)
    tau_slope = plain.tau_slope if slope else _UNUSED_TAU
    # both storeys start with half of the plain variance
    tau_2 = np.full(2, plain.tau_level * np.sqrt(0.5))
    for _ in range(_MAX_ROUNDS):
        values = _fit_values(cells, base_logit, parent_level_P[parent_V], (tau_2[1], tau_slope), slope, bend)
        before_P, before_2 = parent_level_P, tau_2
        parent_level_P, tau_2 = _step(cells, base_logit, bend, values, parent_level_P, parent_V, tau_2)
        if np.all(np.abs(tau_2 / before_2 - 1) < _SETTLED_TAU) and (
            np.max(np.abs(parent_level_P - before_P)) < _SETTLED_LEVEL
        ):
            break
    values = _fit_values(cells, base_logit, parent_level_P[parent_V], (tau_2[1], tau_slope), slope, bend)
    total = _add_parents(values, parent_level_P[parent_V] + plain.mean_level, plain)
    return HierarchicalEffects(total, parent_level_P, float(tau_2[0]), float(tau_2[1]))


def _fit_values(
    cells: LogitCells, curve_logit: Floats, parent_level_V: Floats, tau: tuple[float, float], slope: bool, bend: Floats
) -> ValueEffects:
    base_logit = curve_logit + parent_level_V[cells.field_value_id]
    return fit_value_effects(cells, base_logit, slope=slope, tau=tau, free_mean=False, offset=bend)


def _step(
    cells: LogitCells,
    curve_logit: Floats,
    bend: Floats,
    values: ValueEffects,
    parent_level_P: Floats,
    parent_V: Ints,
    tau_2: Floats,
) -> tuple[Floats, Floats]:
    """New parents' levels, and τ of (parents, deviations), from the values' fit given the present parents."""
    n_parents, parent_level_V = len(parent_level_P), parent_level_P[parent_V]
    base_logit = curve_logit + parent_level_V[cells.field_value_id]
    information_V, residual_V = _sum_information(cells, base_logit, bend, values)
    kappa_V = 1 / (1 + information_V * tau_2[1] ** 2)
    pull_V = residual_V + information_V * (values.level_V + parent_level_V)  # I·x

    evidence_P = np.bincount(parent_V, weights=kappa_V * information_V, minlength=n_parents)
    variance_P = 1 / (evidence_P + 1 / tau_2[0] ** 2)
    wanted_P = variance_P * np.bincount(parent_V, weights=kappa_V * pull_V, minlength=n_parents)
    # no parent (0) has level 0, without uncertainty
    wanted_P[0], variance_P[0] = 0.0, 0.0
    new_P = parent_level_P + np.clip(wanted_P - parent_level_P, -_MAX_PARENT_STEP, _MAX_PARENT_STEP)

    deviation_V = tau_2[1] ** 2 * kappa_V * (pull_V - information_V * new_P[parent_V])
    reliance_V = tau_2[1] ** 2 * kappa_V * information_V
    variance_V = tau_2[1] ** 2 * kappa_V + reliance_V**2 * variance_P[parent_V]
    has_parent_cells = evidence_P > 0
    has_parent_cells[0] = False
    tau_parent = _update_tau(new_P[has_parent_cells], variance_P[has_parent_cells], tau_2[0])
    tau_value = _update_tau(deviation_V[information_V > 0], variance_V[information_V > 0], tau_2[1])
    return new_P, np.array([tau_parent, tau_value])


def _sum_information(
    cells: LogitCells, base_logit: Floats, bend: Floats, values: ValueEffects
) -> tuple[Floats, Floats]:
    """(information on the level with the slope free, Σ(y − p)) of every field value at the fit; 0 for id 0."""
    u = (base_logit - values.mean) / values.scale
    probability = expit(values.apply(cells.field_value_id, base_logit) + bend)
    information = cells.weight * probability * (1 - probability)
    information_V = cells.sum_by_value(information)
    if values.tau_slope > 0:
        slope_V = cells.sum_by_value(information * u**2) + 1 / values.tau_slope**2
        information_V = information_V - cells.sum_by_value(information * u) ** 2 / slope_V
    residual_V = cells.sum_by_value(cells.response - cells.weight * probability)
    information_V[0], residual_V[0] = 0.0, 0.0
    return information_V, residual_V


def _update_tau(theta: Floats, variance: Floats, tau: float) -> float:
    """τ ← sqrt(Σθ²/max(Σ(1 − V/τ²), .001)), by at most a factor 4, within TAU_LIMITS."""
    determined = float(np.sum(1 - variance / tau**2))
    new = float(np.sqrt(np.sum(theta**2) / max(determined, 0.001)))
    return float(np.clip(np.clip(new, tau / 4, tau * 4), *TAU_LIMITS))


def _add_parents(values: ValueEffects, parent_level_V: Floats, plain: ValueEffects) -> ValueEffects:
    """η = l + P + d + b·(l + P − mean′)/scale′ as effects on l, with mean, scale and bends of the plain effects."""
    stretch = plain.scale / values.scale
    shift_V = (parent_level_V + plain.mean - values.mean) / values.scale
    return replace(
        plain,
        level_V=parent_level_V + values.level_V + values.slope_V * shift_V,
        slope_V=values.slope_V * stretch,
        tau_level=values.tau_level,
        tau_slope=values.tau_slope * stretch,
    )


def _check_parents(cells: LogitCells, parent_V: Ints) -> None:
    if len(parent_V) != cells.n_values or not np.issubdtype(parent_V.dtype, np.integer):
        raise ParentError(
            f"{len(parent_V)} parents ({parent_V.dtype}) for {cells.n_values} field value ids: give one dense parent "
            "id per field value id, id 0 included, as whole numbers; 0 means no parent"
        )
    if parent_V.min() < 0 or parent_V[0] != 0:
        raise ParentError(
            f"parent ids from {parent_V.min()}, field value id 0 (unseen) has parent {parent_V[0]}: parent ids start "
            "at 0, and unseen values have none (0)"
        )
