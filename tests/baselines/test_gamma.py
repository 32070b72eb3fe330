from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from adacalib.baselines.gamma import GammaCalibration, fit_gamma
from adacalib.cells.logit_cells import pool_values
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def log_odds(p):
    return np.log(p / (1 - p))


def end_slopes(fitted):
    """a/x + b at both ends of the range of the fit."""
    return fitted.a + fitted.b, fitted.a / (fitted.highest_logit - fitted.lowest_logit + 1) + fitted.b


def test_prediction_by_hand():
    fitted = GammaCalibration(a=2.0, b=-0.5, c=-1.0, lowest_logit=-3.0, highest_logit=0.0)
    # x = 1, 2, 4 at -3, -2, 0: 2·log(x) - x/2 - 1 = -1.5, 2·log(2) - 2, 2·log(4) - 3; below -3 as at -3;
    # above 0 with the slope 2/4 - 1/2 = 0 that it has there, though 2·log(x) - x/2 itself falls from there on
    at = np.array([-16.0, -3, -2, 0, 5])
    expected = [-1.5, -1.5, 2 * np.log(2) - 2, 2 * np.log(4) - 3, 2 * np.log(4) - 3]
    np.testing.assert_allclose(log_odds(fitted.predict(at, np.zeros(5, np.int64))), expected)


def test_the_highest_slope_goes_on():
    # slope at x = 4: 1/4 + .5 = .75
    fitted = GammaCalibration(a=1.0, b=0.5, c=0.0, lowest_logit=-3.0, highest_logit=0.0)
    at = log_odds(fitted.predict(np.array([0.0, 1.0, 3.0]), np.zeros(3, np.int64)))
    np.testing.assert_allclose(np.diff(at), [0.75, 1.5])


def test_two_cells_are_met_exactly():
    # two increasing rates, more parameters than cells: both are met, at Platt's targets of 12 responses, 68 others
    cells = cells_by_hand([(1, -32, 40, 4), (2, 0, 40, 8)], 3)
    predicted = fit_gamma(cells).predict(cells.logit, cells.field_value_id)
    expected = [(4 * 13 / 14 + 36 / 70) / 40, (8 * 13 / 14 + 32 / 70) / 40]
    np.testing.assert_allclose(predicted, expected, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(some_cells())
def test_gamma_is_the_oracles(cells):
    """Against SLSQP on (a, b, c) with the two constraints written out."""
    pooled = pool_values(cells)
    if np.ptp(pooled.logit) < 1 / 32:
        return
    positive = pooled.response.sum()
    negative = pooled.weight.sum() - positive
    target = pooled.response * (positive + 1) / (positive + 2) + (pooled.weight - pooled.response) / (negative + 2)
    x = pooled.logit - pooled.logit.min() + 1
    columns = np.stack([np.log(x), x, np.ones(len(x))])

    def loss(theta):
        eta = theta @ columns
        error = pooled.weight / (1 + np.exp(-eta)) - target
        total = pooled.weight.sum()
        return np.sum(pooled.weight * np.logaddexp(0, eta) - target * eta) / total, columns @ error / total

    slopes = np.array([[1, 1, 0], [1 / x.max(), 1, 0]])
    expected = minimize(
        loss,
        [0.0, 0.1, -1.0],
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda t: slopes @ t, "jac": lambda t: slopes},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    fitted = fit_gamma(cells)
    assert min(end_slopes(fitted)) >= -1e-9
    assert loss(np.array([fitted.a, fitted.b, fitted.c]))[0] <= expected.fun + 1e-8
    if expected.success:
        predicted = fitted.predict(pooled.logit, pooled.field_value_id)
        np.testing.assert_allclose(predicted, 1 / (1 + np.exp(-(expected.x @ columns))), atol=5e-3)


def test_gamma_recovers_its_own_kind():
    rng = np.random.default_rng(4)
    s = rng.uniform(-4, 0, 300_000)
    eta = 1.2 * np.log(s + 5) - 0.1 * s - 2.6
    y = (rng.random(300_000) < 1 / (1 + np.exp(-eta))).astype(np.int64)
    line = np.linspace(-4, 0, 9)
    predicted = fit_gamma(cells_of_rows(np.ones(300_000, np.int64), s, y, 2)).predict(line, np.zeros(9, np.int64))
    np.testing.assert_allclose(log_odds(predicted), 1.2 * np.log(line + 5) - 0.1 * line - 2.6, atol=0.05)


def draw_bent(power, n=100_000):
    """Rates whose log-odds are a power of the logit's place in its range of [-4, 0]."""
    rng = np.random.default_rng(6)
    s = rng.uniform(-4, 0, n)
    eta = -3 + 3 * ((s + 4) / 4) ** power
    return cells_of_rows(np.ones(n, np.int64), s, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int64), 2)


def test_the_constraint_is_the_gamma_forms():
    # flat first, steep last: a < 0 < b, the constraint holds the slope at the lowest score at 0. The Gaussian form's
    # 2a·x + b >= 0 would ask for a >= -b/(2·x_1) = -b/10 and so forbid this fit, whose a is -b
    flat_first = fit_gamma(draw_bent(4))
    assert end_slopes(flat_first)[0] == pytest.approx(0, abs=1e-9)
    assert end_slopes(flat_first)[1] > 0.5
    assert flat_first.a < -0.5
    assert flat_first.b == pytest.approx(-flat_first.a)
    # steep first, flat or falling last: the slope at the highest score is held at 0
    rng = np.random.default_rng(6)
    s = rng.uniform(-4, 0, 100_000)
    y = (rng.random(100_000) < 0.05 + 0.2 * np.sin((s + 4) * np.pi / 6)).astype(np.int64)
    flat_last = fit_gamma(cells_of_rows(np.ones(100_000, np.int64), s, y, 2))
    assert end_slopes(flat_last)[0] > 0.5
    assert end_slopes(flat_last)[1] == pytest.approx(0, abs=1e-9)


def test_falling_rates_give_the_mean_label():
    (z, s, y, _), _ = draw_rows(5000, 4, seed=3)
    fitted = fit_gamma(cells_of_rows(z, -s, y, 5))
    predicted = fitted.predict(np.linspace(-16, 16, 50), np.zeros(50, np.int64))
    np.testing.assert_allclose(predicted, y.mean(), rtol=1e-3)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_one_sample_of_doubt(label):
    fitted = fit_gamma(cells_of_rows([1] * 98, np.linspace(-3, 3, 98), [label] * 98, 2))
    predicted = fitted.predict(np.linspace(-16, 16, 50), np.zeros(50, np.int64))
    np.testing.assert_allclose(predicted, 0.99 if label else 0.01)


def test_equal_logits_move_the_level_only():
    # 3 of 12 at .5/32: a response counts 4/5, any other sample 1/11; beyond that logit the slope is 1, below it 0
    fitted = fit_gamma(cells_by_hand([(1, 0, 12, 3)], 2))
    mean = log_odds((3 * 0.8 + 9 / 11) / 12)
    at = np.array([-5.0, 0.5 / 32, 0.5 / 32 + 2])
    np.testing.assert_allclose(log_odds(fitted.predict(at, np.zeros(3, np.int64))), [mean, mean, mean + 2])
