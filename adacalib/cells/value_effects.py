"""Level and slope of every field value by empirical Bayes: as much of them as the data support."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logit_cells import Floats, Ints, LogitCells

TAU_LIMITS = (0.005, 5.0)
_TAU_START = 0.3
_MAX_STEP = 2.0
_MAX_ROUNDS = 30
_MAX_NEWTON_STEPS = 100


@dataclass(frozen=True)
class ValueEffects:
    """η = l + level_z + slope_z · (l − mean) / scale, l the log-odds before the effects.

    Attributes:
        level_V: level of each field value, log-odds; 0 for id 0 and for ids without cells.
        slope_V: change of log-odds per standard deviation of l; 0 as above.
        tau_level: standard deviation of the levels' prior, log-odds; 0 when the level is switched off.
        tau_slope: the same for the slopes.
        mean: weighted mean of l.
        scale: weighted standard deviation of l, plus .001.
    """

    level_V: Floats
    slope_V: Floats
    tau_level: float
    tau_slope: float
    mean: float
    scale: float

    def apply(self, field_value_id: Ints, curve_logit: Floats) -> Floats:
        """η of each l; the two arguments broadcast against each other (ids (V, 1) with l (V, J), say)."""
        standardised = (curve_logit - self.mean) / self.scale
        effect: Floats = self.level_V[field_value_id] + self.slope_V[field_value_id] * standardised
        return curve_logit + effect


@dataclass(frozen=True)
class _Problem:
    """What the Newton steps need: cells with cells of id 0 left out, l, u, and which coordinates are free."""

    cells: LogitCells
    offset: Floats
    standardised: Floats
    free_2: tuple[bool, bool]


def fit_value_effects(
    cells: LogitCells,
    curve_logit: Floats,
    *,
    level: bool = True,
    slope: bool = True,
    tau: tuple[float, float] | None = None,
) -> ValueEffects:
    """Fits level and slope of every field value under independent normal priors (algorithm.md step 2).

    The penalised likelihood of each value is maximised by Newton steps on its two coordinates at once. Between
    rounds each prior's standard deviation is set to τ ← sqrt(Σθ² / max(Σ(1 − V/τ²), .001)) over the values with
    samples, V the variance of θ given the data; by at most a factor 4 per round, within TAU_LIMITS, until it
    changes by less than 1 %, at most 30 rounds. Without a field effect τ ends at or near the lower limit.

    Args:
        cells: logit cells; cells of id 0 take no part, except in mean and scale.
        curve_logit: l of each cell, log-odds (the global curve at the cell's mean logit, say).
        level: whether field values have a level of their own.
        slope: whether they have a slope of their own.
        tau: (τ of level, τ of slope), fixed; estimated when None. The τ of a switched-off effect is ignored.

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
    seen = cells.field_value_id > 0
    problem = _Problem(cells.select(seen), curve_logit[seen], (curve_logit[seen] - mean) / scale, (level, slope))
    if tau is not None and any(free and not value > 0 for free, value in zip((level, slope), tau, strict=True)):
        raise ValueError(
            f"tau is {tau}: the standard deviation of a prior must be positive; switch the effect off instead"
        )

    theta_2V = np.zeros((2, cells.n_values))
    tau_2 = np.full(2, _TAU_START) if tau is None else np.array(tau, np.float64)
    for _ in range(_MAX_ROUNDS if tau is None and (level or slope) else 0):
        theta_2V, variance_2V = _maximise(problem, theta_2V, tau_2, tolerance=1e-3)
        previous_2, tau_2 = tau_2, _update_tau(problem, theta_2V, variance_2V, tau_2)
        if np.all(np.abs(tau_2 / previous_2 - 1) < 0.01):
            break
    theta_2V, _ = _maximise(problem, theta_2V, tau_2, tolerance=1e-9)
    return ValueEffects(
        level_V=theta_2V[0],
        slope_V=theta_2V[1],
        tau_level=float(tau_2[0]) if level else 0.0,
        tau_slope=float(tau_2[1]) if slope else 0.0,
        mean=mean,
        scale=scale,
    )


def _update_tau(problem: _Problem, theta_2V: Floats, variance_2V: Floats, tau_2: Floats) -> Floats:
    seen_V = problem.cells.sum_by_value(problem.cells.weight) > 0
    determined_2 = np.sum((1 - variance_2V / tau_2[:, None] ** 2)[:, seen_V], axis=1)
    new_2 = np.sqrt(np.sum(theta_2V[:, seen_V] ** 2, axis=1) / np.maximum(determined_2, 0.001))
    new_2 = np.clip(np.clip(new_2, tau_2 / 4, tau_2 * 4), *TAU_LIMITS)
    return np.where(problem.free_2, new_2, tau_2)


def _maximise(problem: _Problem, theta_2V: Floats, tau_2: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """Newton to the posterior mode of every value; returns it with the posterior variances.

    A step that runs past the maximum along its own direction, onto a steeper slope than it left, is halved: so no
    value can cycle, however large its standardised log-odds.
    """
    step_2V, rise_V = np.zeros_like(theta_2V), np.zeros(theta_2V.shape[1])
    for _ in range(_MAX_NEWTON_STEPS):
        gradient_2V, newton_2V, variance_2V = _newton_step(problem, theta_2V, tau_2)
        overshot_V = -np.sum(gradient_2V * step_2V, axis=0) > 0.5 * rise_V + 1e-12
        # both coordinates are scaled alike: clipped one by one, the step might no longer lead uphill
        newton_2V = newton_2V * (_MAX_STEP / np.maximum(np.max(np.abs(newton_2V), axis=0), _MAX_STEP))
        rise_V = np.where(overshot_V, rise_V / 2, np.sum(gradient_2V * newton_2V, axis=0))
        halved_2V = step_2V / 2
        theta_2V = theta_2V + np.where(overshot_V, -halved_2V, newton_2V)
        step_2V = np.where(overshot_V, halved_2V, newton_2V)
        if np.max(np.abs(step_2V), initial=0.0) < tolerance:
            break
    return theta_2V, variance_2V


def _newton_step(problem: _Problem, theta_2V: Floats, tau_2: Floats) -> tuple[Floats, Floats, Floats]:
    """(gradient, Newton step, posterior variance) of the penalised log-likelihood of every value, each 2 × V."""
    cells, u, (level, slope) = problem.cells, problem.standardised, problem.free_2
    probability = expit(problem.offset + theta_2V[0][cells.field_value_id] + theta_2V[1][cells.field_value_id] * u)
    residual = cells.response - cells.weight * probability
    information = cells.weight * probability * (1 - probability)
    ridge_2 = 1 / tau_2**2
    # a coordinate that is switched off has gradient 0 and no information: it stays where it starts, at 0
    nothing_V = np.zeros(cells.n_values)
    gradient_2V = np.stack(
        [
            cells.sum_by_value(residual) if level else nothing_V,
            cells.sum_by_value(residual * u) if slope else nothing_V,
        ]
    ) - (ridge_2[:, None] * theta_2V)
    level_V = (cells.sum_by_value(information) if level else nothing_V) + ridge_2[0]
    slope_V = (cells.sum_by_value(information * u**2) if slope else nothing_V) + ridge_2[1]
    cross_V = cells.sum_by_value(information * u) if level and slope else nothing_V
    determinant_V = level_V * slope_V - cross_V**2
    variance_2V = np.stack([slope_V, level_V]) / determinant_V
    newton_2V = variance_2V * gradient_2V - cross_V / determinant_V * gradient_2V[::-1]
    return gradient_2V, newton_2V, variance_2V
