"""Level, slope and shape of every field value by empirical Bayes: as much of them as the data support.

Shape letters: V field values, R those that have cells, J free effects, N cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logit_cells import Floats, Ints, LogitCells

TAU_LIMITS = (0.005, 5.0)
N_SHAPES = 3
"""Bends of a value's function beyond its slope: Hermite polynomials of degree 2, 3 and 4."""
SHAPE_REACH = 2.5
"""Standard deviations of l beyond which the bends stay as they are: a polynomial must not run away in the tails."""
MEAN_SPREAD = 1.0
"""Prior standard deviation of the levels' mean, log-odds: what keeps it finite where all labels are of one class."""

_TAU_START = 0.3
_MEAN_TOLERANCE = 0.01  # of τ
_SMALL_TAU = 0.01  # below it a per cent of τ is nothing: effects that are not there need not find their last digit
_MAX_STEP = 2.0
_MOST_PACE = 8.0
_LEAST_MOVE = 1e-6  # of log τ; from less nothing can be told
_MAX_ROUNDS = 30
_STEPS_PER_ROUND = 3
_MAX_NEWTON_STEPS = 100
_LEAST_SPREAD = 0.01  # log-odds
_LEVEL, _SLOPE = 0, 1


@dataclass(frozen=True)
class ValueEffects:
    """η = l + level_z + slope_z·u + Σ_k shape_zk·φ_k(u), l the log-odds before the effects, u = (l − mean)/scale.

    Attributes:
        level_V: level of each field value, log-odds; `mean_level` for id 0 and for ids without cells.
        slope_V: change of log-odds per standard deviation of l; 0 for id 0 and for ids without cells.
        tau_level: standard deviation of the levels' prior, log-odds; 0 when the level is switched off.
        tau_slope: the same for the slopes.
        mean: weighted mean of l.
        scale: weighted standard deviation of l, plus .001.
        mean_level: mean of the levels' prior, log-odds: where a field value is expected before anything is known of it.
        shape_VK: weights of the bends (`compute_shapes`), log-odds; None when the shape is switched off.
        tau_shape: standard deviations of their priors; empty when the shape is switched off.
    """

    level_V: Floats
    slope_V: Floats
    tau_level: float
    tau_slope: float
    mean: float
    scale: float
    mean_level: float = 0.0
    shape_VK: Floats | None = None
    tau_shape: tuple[float, ...] = ()

    def apply(self, field_value_id: Ints, curve_logit: Floats) -> Floats:
        """η of each l; the two arguments broadcast against each other (ids (V, 1) with l (V, J), say)."""
        standardised = (curve_logit - self.mean) / self.scale
        effect: Floats = self.level_V[field_value_id] + self.slope_V[field_value_id] * standardised
        return curve_logit + effect + self.compute_shape(field_value_id, curve_logit)

    def compute_shape(self, field_value_id: Ints, curve_logit: Floats) -> Floats:
        """The bends' part of η, log-odds; 0 without them."""
        total: Floats = np.zeros(np.broadcast_shapes(field_value_id.shape, curve_logit.shape))
        if self.shape_VK is not None:
            for place, bend in enumerate(compute_shapes((curve_logit - self.mean) / self.scale)):
                total = total + self.shape_VK[field_value_id, place] * bend
        return total


def compute_shapes(standardised: Floats) -> tuple[Floats, ...]:
    """The N_SHAPES bends at u: Hermite polynomials (mean 0, variance 1 under a normal u), flat beyond SHAPE_REACH.

    >>> [round(float(bend), 3) for bend in compute_shapes(np.array(1.0))]
    [0.0, -0.816, -0.408]
    """
    u = np.clip(standardised, -SHAPE_REACH, SHAPE_REACH)
    return (
        (u**2 - 1) / np.sqrt(2.0),
        (u**3 - 3 * u) / np.sqrt(6.0),
        (u**4 - 6 * u**2 + 3) / np.sqrt(24.0),
    )


@dataclass(frozen=True)
class _Problem:
    """What the Newton steps need: the cells of known values, in the order of their ids.

    Attributes:
        ids_R: the values that have cells, increasing.
        starts_R: each one's first cell.
        place_N: each cell's value, as a place among them.
        weight_N, response_N, offset_N: of the cells; the offset is l and whatever else is given.
        basis_NJ: what a unit of each free effect adds to a cell's log-odds.
        products_NP: basis_j · basis_k of each pair j ≤ k, in the order of `numpy.triu_indices`.
    """

    ids_R: Ints
    starts_R: Ints
    place_N: Ints
    weight_N: Floats
    response_N: Floats
    offset_N: Floats
    basis_NJ: Floats
    products_NP: Floats

    def add(self, values_NX: Floats) -> Floats:
        """Sums over the cells of each value, R × X."""
        if not len(self.starts_R):
            return np.zeros((0, values_NX.shape[1]))
        return np.asarray(np.add.reduceat(values_NX, self.starts_R, axis=0))


@dataclass(frozen=True)
class _Prior:
    """Normal priors of the free effects: means and standard deviations, log-odds."""

    mean_J: Floats
    tau_J: Floats


def fit_value_effects(
    cells: LogitCells,
    curve_logit: Floats,
    *,
    level: bool = True,
    slope: bool = True,
    shape: bool = False,
    tau: tuple[float, ...] | None = None,
    free_mean: bool = True,
    offset: Floats | None = None,
) -> ValueEffects:
    """Fits level, slope and shape of every field value under independent normal priors (algorithm.md step 2).

    The penalised likelihood of each value is maximised by Newton steps on its effects at once. Between rounds each
    prior's standard deviation is set to τ ← sqrt(Σ(θ − m)² / max(Σ(1 − V/τ²), .001)) over the values with samples, V
    the variance of θ given the data, and from the second round on as far beyond or short of it as the last two rounds
    say that it will end (`_Pace`); by at most a factor 4 per round, within TAU_LIMITS, until it changes by less than
    1 % (of .01, where it is smaller), at most 30 rounds. Without a field effect τ ends at or near the lower limit.

    The levels' prior has a mean of its own: l is where the frequent field values are, and rare and unseen ones need
    not lie there too. With B = 1 − V/τ² and a prior N(0, s²) on it, s MEAN_SPREAD, m ← Σ(B·m + θ − m)/(ΣB + τ²/s²),
    which is the mean of the values' own estimates, each with weight 1/(τ² + its variance): a Newton step towards
    Σ(θ − m) = m·τ²/s², where m and θ together are most likely. It is clipped to ±2: where the values' responses are
    seldom under l and frequent in truth, the full step would jump to and fro, ever farther. A fixed τ leaves m free.

    Args:
        cells: logit cells; cells of id 0 take no part, except in mean and scale.
        curve_logit: l of each cell, log-odds (the global curve at the cell's mean logit, say).
        level: whether field values have a level of their own.
        slope: whether they have a slope of their own.
        shape: whether their functions bend in ways of their own (`compute_shapes`); not where all l are alike.
        tau: (τ of level, τ of slope, τ of each bend where there are bends), fixed; estimated when None. The τ of a
            switched-off effect is ignored.
        free_mean: whether the levels' prior has a mean of its own; 0 otherwise.
        offset: log-odds of each cell that come on top of l and are no part of the effects.

    Raises:
        NoCellsError: there are no cells.
        ValueError: a fixed τ that is not positive, or an l that is not finite.
    """
    require_cells(cells)
    if n_faulty := int(np.sum(~np.isfinite(curve_logit))):
        raise ValueError(
            f"{n_faulty} of {len(cells)} log-odds before the effects are not finite: the curve has a rate of 0 or 1; "
            "smooth or clip its rates first"
        )
    total = cells.weight.sum()
    mean = float(np.sum(cells.weight * curve_logit) / total)
    scale = float(np.sqrt(np.sum(cells.weight * (curve_logit - mean) ** 2) / total)) + 0.001
    # log-odds that are all alike have no shape, and a bend would be a level by another name
    free = np.array([level, slope, *[shape and scale > _LEAST_SPREAD] * N_SHAPES])
    given_J = _read_tau(tau, free)
    problem = _pose(cells, curve_logit, (curve_logit - mean) / scale, free, offset)
    prior = _Prior(np.zeros(len(given_J)), given_J)
    theta_RJ = np.zeros((len(problem.ids_R), len(given_J)))
    if free.any():
        has_mean = free_mean and level
        theta_RJ, prior = _fit_prior(problem, theta_RJ, prior, has_mean, is_fixed=tau is not None)
        theta_RJ, *_ = _maximise(problem, theta_RJ, prior, tolerance=1e-9, max_steps=_MAX_NEWTON_STEPS)
    return _gather(cells.n_values, problem, free, theta_RJ, prior, mean, scale)


def _read_tau(tau: tuple[float, ...] | None, free: npt.NDArray[np.bool_]) -> Floats:
    """The free effects' τ, or where they start."""
    if tau is None:
        return np.full(int(free.sum()), _TAU_START)
    given = np.array([*tau, *[_TAU_START] * (len(free) - len(tau))], np.float64)[free]
    if not np.all(given > 0):
        raise ValueError(
            f"tau is {tau}: the standard deviation of a prior must be positive; switch the effect off instead"
        )
    return given


def _pose(
    cells: LogitCells, curve_logit: Floats, standardised: Floats, free: npt.NDArray[np.bool_], offset: Floats | None
) -> _Problem:
    seen = cells.field_value_id > 0
    ids_N, u_N = cells.field_value_id[seen], standardised[seen]
    ids_R, starts_R, place_N = np.unique(ids_N, return_index=True, return_inverse=True)
    columns = (np.ones(len(u_N)), u_N, *compute_shapes(u_N))
    basis_NJ = np.stack([column for column, is_free in zip(columns, free, strict=True) if is_free] or [u_N], axis=1)
    first, second = np.triu_indices(basis_NJ.shape[1])
    offset_N = curve_logit[seen] if offset is None else curve_logit[seen] + offset[seen]
    return _Problem(
        ids_R=ids_R,
        starts_R=starts_R,
        place_N=place_N,
        weight_N=cells.weight[seen],
        response_N=cells.response[seen],
        offset_N=offset_N,
        basis_NJ=basis_NJ,
        products_NP=basis_NJ[:, first] * basis_NJ[:, second],
    )


def _fit_prior(
    problem: _Problem, theta_RJ: Floats, prior: _Prior, has_mean: bool, is_fixed: bool
) -> tuple[Floats, _Prior]:
    """Rounds of effects given the prior and the prior given the effects; the level, where free, comes first."""
    if is_fixed and not has_mean:
        return theta_RJ, prior
    pace = _Pace.start(len(prior.tau_J))
    for _ in range(_MAX_ROUNDS):
        theta_RJ, variance_RJ, are_modes = _maximise(problem, theta_RJ, prior, 1e-3, max_steps=_STEPS_PER_ROUND)
        share_RJ = np.clip(1 - variance_RJ / prior.tau_J**2, 1e-9, 1.0)
        mean_J, tau_J = prior.mean_J.copy(), prior.tau_J
        if has_mean:
            mean, share_R = float(mean_J[_LEVEL]), share_RJ[:, _LEVEL]
            step = _find_mean_step(theta_RJ[:, _LEVEL] - mean, mean, share_R, float(tau_J[_LEVEL]))
            mean_J[_LEVEL] += step
            theta_RJ[:, _LEVEL] += (1 - share_R) * step  # as far as the levels will follow
        if not is_fixed:
            wanted_J = _find_tau(theta_RJ - mean_J, share_RJ)
            tau_J, pace = pace.step(tau_J, wanted_J)
        has_mean_settled = np.all(np.abs(mean_J - prior.mean_J) < _MEAN_TOLERANCE * tau_J)
        has_tau_settled = np.all(np.abs(tau_J - prior.tau_J) < 0.01 * np.maximum(prior.tau_J, _SMALL_TAU))
        prior = _Prior(mean_J, tau_J)
        if are_modes and has_mean_settled and has_tau_settled:
            break
    return theta_RJ, prior


def _find_mean_step(deviation_R: Floats, mean: float, share_R: Floats, tau: float) -> float:
    """Step of the levels' mean, from the levels less the mean; share is 1 − V/τ²."""
    ridge = (tau / MEAN_SPREAD) ** 2
    newton = (np.sum(deviation_R) - ridge * mean) / (np.sum(share_R) + ridge)
    return float(np.clip(newton, -_MAX_STEP, _MAX_STEP))


def _find_tau(deviation_RJ: Floats, share_RJ: Floats) -> Floats:
    """τ of each effect by its deviations from the prior's mean; share is 1 − V/τ²."""
    tau_J: Floats = np.sqrt(np.sum(deviation_RJ**2, axis=0) / np.maximum(np.sum(share_RJ, axis=0), 0.001))
    return tau_J


@dataclass(frozen=True)
class _Pace:
    """How far each τ goes towards the one that its effects ask for: a secant step on their log ratio.

    A τ far from the data's (that of an effect which is not there, above all) moves by the same few per cent round after
    round. Two rounds tell how the rest of the way shrinks, and with it where it ends (Aitken's Δ² process).

    Attributes:
        rise_J: log(wanted τ / τ) of the round before; NaN in the first.
        moved_J: how far log τ went then.
    """

    rise_J: Floats
    moved_J: Floats

    @classmethod
    def start(cls, n_effects: int) -> _Pace:
        return cls(np.full(n_effects, np.nan), np.full(n_effects, np.nan))

    def step(self, tau_J: Floats, wanted_J: Floats) -> tuple[Floats, _Pace]:
        """(τ, pace) of the next round; by at most a factor 4, within TAU_LIMITS."""
        rise_J = np.log(np.maximum(wanted_J, 1e-9) / tau_J)
        with np.errstate(divide="ignore", invalid="ignore"):
            shrinking_J = (self.rise_J - rise_J) / self.moved_J
            factor_J = np.where(shrinking_J > 1 / _MOST_PACE, np.maximum(1 / shrinking_J, 0.5), _MOST_PACE)
        factor_J = np.where(np.abs(self.moved_J) > _LEAST_MOVE, factor_J, 1.0)
        wanted_log_J = np.log(tau_J) + np.clip(factor_J * rise_J, -np.log(4.0), np.log(4.0))
        new_J: Floats = np.clip(np.exp(wanted_log_J), *TAU_LIMITS)
        return new_J, _Pace(rise_J, np.log(new_J / tau_J))


def _maximise(
    problem: _Problem, theta_RJ: Floats, prior: _Prior, tolerance: float, max_steps: int
) -> tuple[Floats, Floats, bool]:
    """Newton to the posterior mode of every value; returns it with the posterior variances, and whether it got there.

    A step that runs past the maximum along its own direction, onto a steeper slope than it left, is halved: so no
    value can cycle, however large its standardised log-odds.
    """
    step_RJ, rise_R = np.zeros_like(theta_RJ), np.zeros(len(theta_RJ))
    variance_RJ, has_settled = np.zeros_like(theta_RJ), False
    for _ in range(max_steps):
        gradient_RJ, newton_RJ, variance_RJ = _newton_step(problem, theta_RJ, prior)
        overshot_R = -np.sum(gradient_RJ * step_RJ, axis=1) > 0.5 * rise_R + 1e-12
        # all effects are scaled alike: clipped one by one, the step might no longer lead uphill
        largest_R = np.max(np.abs(newton_RJ), axis=1, initial=0.0)
        newton_RJ = newton_RJ * (_MAX_STEP / np.maximum(largest_R, _MAX_STEP))[:, None]
        rise_R = np.where(overshot_R, rise_R / 2, np.sum(gradient_RJ * newton_RJ, axis=1))
        halved_RJ = step_RJ / 2
        theta_RJ = theta_RJ + np.where(overshot_R[:, None], -halved_RJ, newton_RJ)
        step_RJ = np.where(overshot_R[:, None], halved_RJ, newton_RJ)
        has_settled = bool(np.max(np.abs(step_RJ), initial=0.0) < tolerance)
        if has_settled:
            break
    return theta_RJ, variance_RJ, has_settled


def _newton_step(problem: _Problem, theta_RJ: Floats, prior: _Prior) -> tuple[Floats, Floats, Floats]:
    """(gradient, Newton step, posterior variances) of every value with cells."""
    effect_N = np.einsum("nj,nj->n", problem.basis_NJ, theta_RJ[problem.place_N])
    probability_N = expit(problem.offset_N + effect_N)
    residual_N = problem.response_N - problem.weight_N * probability_N
    information_N = problem.weight_N * probability_N * (1 - probability_N)
    gradient_RJ = problem.add(residual_N[:, None] * problem.basis_NJ) - (theta_RJ - prior.mean_J) / prior.tau_J**2
    n_effects = theta_RJ.shape[1]
    curvature_RJJ = np.empty((len(theta_RJ), n_effects, n_effects))
    first, second = np.triu_indices(n_effects)
    sums_RP = problem.add(information_N[:, None] * problem.products_NP)
    curvature_RJJ[:, first, second] = curvature_RJJ[:, second, first] = sums_RP
    diagonal = np.arange(n_effects)
    curvature_RJJ[:, diagonal, diagonal] += 1 / prior.tau_J**2
    covariance_RJJ = _invert(curvature_RJJ)
    newton_RJ = np.einsum("rjk,rk->rj", covariance_RJJ, gradient_RJ)
    return gradient_RJ, newton_RJ, covariance_RJJ[:, diagonal, diagonal]


def _invert(matrices_RJJ: Floats) -> Floats:
    """Inverses of many small positive definite matrices, by the sweep operator on all of them at once.

    LAPACK is called once per matrix, and its threads cost more than a matrix of this size.
    """
    swept_RJJ = matrices_RJJ.copy()
    for k in range(matrices_RJJ.shape[1]):
        pivot_R1 = swept_RJJ[:, k, k, None].copy()
        column_RJ = swept_RJJ[:, :, k].copy()
        swept_RJJ -= column_RJ[:, :, None] * (column_RJ / pivot_R1)[:, None, :]
        swept_RJJ[:, k, :] = swept_RJJ[:, :, k] = column_RJ / pivot_R1
        swept_RJJ[:, k, k] = -1 / pivot_R1[:, 0]
    return -swept_RJJ


def _gather(
    n_values: int,
    problem: _Problem,
    free: npt.NDArray[np.bool_],
    theta_RJ: Floats,
    prior: _Prior,
    mean: float,
    scale: float,
) -> ValueEffects:
    """Effects per dense id: id 0 and ids without cells have the prior's means."""
    means, taus = np.zeros(len(free)), np.zeros(len(free))
    all_effects = np.zeros((n_values, len(free)))
    if free.any():
        means[free], taus[free] = prior.mean_J, prior.tau_J
        all_effects += means
        all_effects[np.ix_(problem.ids_R, np.flatnonzero(free))] = theta_RJ
    has_shape = bool(free[2])
    return ValueEffects(
        level_V=all_effects[:, _LEVEL].copy(),
        slope_V=all_effects[:, _SLOPE].copy(),
        tau_level=float(taus[_LEVEL]),
        tau_slope=float(taus[_SLOPE]),
        mean=mean,
        scale=scale,
        mean_level=float(means[_LEVEL]),
        shape_VK=all_effects[:, 2:].copy() if has_shape else None,
        tau_shape=tuple(float(value) for value in taus[2:]) if has_shape else (),
    )
