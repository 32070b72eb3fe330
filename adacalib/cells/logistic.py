"""Logistic regression on logit cells with few features: the likelihood behind Platt, temperature, gamma, forward slope.

Shape letters: N cells, D features, E = D + 1 columns (the features and the level).
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.special import logit as to_logit

from adacalib.cells.logit_cells import Floats

_SETTLED = 1e-18  # squared Newton decrement per unit of weight; Newton's last step squares the error again
_ROUNDING = 1e-13  # relative rounding of a sum of losses


class NotSettledError(RuntimeError):
    """Newton's method has not come to rest."""


def smooth_responses(weight: Floats, response: Floats) -> Floats:
    """Σy with Platt's targets (Platt 1999, section 2.2): a label 1 counts (N₊ + 1)/(N₊ + 2), a label 0 1/(N₋ + 2).

    N₊ and N₋ are the weights of both classes. One sample's worth of doubt per class, nothing on large data; but with
    it the likelihood has a finite maximum also for labels of one class and for classes that a threshold separates.

    Args:
        weight: sum of weights of each cell, > 0.
        response: weighted sum of labels of each cell, in [0, weight].
    """
    response = np.clip(response, 0.0, weight)
    n_positive, n_negative = response.sum(), (weight - response).sum()
    smoothed: Floats = response * (n_positive + 1) / (n_positive + 2) + (weight - response) / (n_negative + 2)
    return smoothed


def compute_log_loss_sum(log_odds: Floats, weight: Floats, response: Floats) -> float:
    """Σ w·log(1 + e^η) − y·η: minus the log-likelihood of the responses at log-odds η.

    Written as a sum of terms ≥ 0: with rates near 0 or 1 the plain form is a small difference of large numbers.
    """
    missing = (weight - response) * np.maximum(log_odds, 0.0) + response * np.maximum(-log_odds, 0.0)
    return float(np.sum(weight * np.log1p(np.exp(-np.abs(log_odds))) + missing))


def fit_logistic(features_ND: Floats, weight: Floats, response: Floats, max_steps: int = 100) -> tuple[Floats, float]:
    """(coefficients, level) of greatest likelihood, log-odds = features · coefficients + level.

    Newton's method with step halving, on features of mean 0 and deviation 1. Where features depend on each other, the
    shortest coefficients in that scale.

    Args:
        features_ND: N cells by D features, none of them constant; D may be 0.
        weight: sum of weights of each cell, > 0.
        response: sum of labels of each cell, such that the likelihood has a finite maximum (see `smooth_responses`).
        max_steps: Newton steps at most.

    Raises:
        NotSettledError: Newton's method does not come to rest within `max_steps`.
    """
    mean_D = weight @ features_ND / weight.sum()
    scale_D = np.sqrt(weight @ (features_ND - mean_D) ** 2 / weight.sum())
    design_NE = np.column_stack([(features_ND - mean_D) / scale_D, np.ones(len(weight))])
    solution_E = np.zeros(design_NE.shape[1])
    decrement = np.inf
    for _ in range(max_steps):
        step_E, decrement = _compute_newton_step(design_NE, weight, response, solution_E)
        if decrement <= _SETTLED * weight.sum():
            coefficients_D = (solution_E - step_E)[:-1] / scale_D
            return coefficients_D, float((solution_E - step_E)[-1] - mean_D @ coefficients_D)
        solution_E = _step_downhill(design_NE, weight, response, solution_E, step_E)
    raise NotSettledError(
        f"logistic regression on {len(weight)} cells did not settle within {max_steps} Newton steps (squared decrement "
        f"{decrement:.3g}): look for logits that are not finite or responses outside [0, weight] in the cells"
    )


def _compute_newton_step(
    design_NE: Floats, weight: Floats, response: Floats, solution_E: Floats
) -> tuple[Floats, float]:
    """(step to take off the solution, squared Newton decrement = gradient · step)."""
    log_odds = design_NE @ solution_E
    p, q = expit(log_odds), expit(-log_odds)
    # q is 1 - p to the last digit; so near p = 1 the residual keeps its digits, as it does near 0
    residual = np.where(log_odds > 0, (weight - response) - weight * q, weight * p - response)
    gradient_E = design_NE.T @ residual
    hessian_EE = (design_NE.T * (weight * p * q)) @ design_NE
    step_E = np.linalg.lstsq(hessian_EE, gradient_E, rcond=None)[0]
    return step_E, float(gradient_E @ step_E)


def _step_downhill(design_NE: Floats, weight: Floats, response: Floats, start_E: Floats, step_E: Floats) -> Floats:
    """The first of the full step, half of it, … that does not raise the loss by more than its rounding."""
    loss = compute_log_loss_sum(design_NE @ start_E, weight, response)
    for halvings in range(60):
        moved_E = start_E - step_E / 2**halvings
        if compute_log_loss_sum(design_NE @ moved_E, weight, response) <= loss * (1 + _ROUNDING):
            break
    return np.asarray(moved_E)


def fit_level(log_odds: Floats, weight: Floats, response: Floats) -> float:
    """The constant to add to the log-odds so that Σwp = Σy; the weighted mean of `log_odds` stands for each.

    For cells whose logits are all alike and so say nothing about a slope.
    """
    total = weight.sum()
    return float(to_logit(response.sum() / total) - np.sum(weight * log_odds) / total)
