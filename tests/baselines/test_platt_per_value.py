from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from adacalib.baselines.platt import fit_platt
from adacalib.baselines.platt_per_value import fit_platt_per_value
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def test_levels_by_hand():
    # one score, 80 and 20 of 100 responses: the line of all says .5, so level a of value 1 solves 80 - 100·σ(a) = a
    # (ridge 1): a = 1.3065456, since 100·σ(1.3065456) = 78.69345; value 2 mirrors it
    fitted = fit_platt_per_value(cells_by_hand([(1, 16, 100, 80), (2, 16, 100, 20)], 3))
    np.testing.assert_allclose(fitted.effects.level_V, [0, 1.3065456, -1.3065456], atol=1e-6)
    np.testing.assert_allclose(fitted.effects.slope_V, 0, atol=1e-12)
    at = np.full(4, 16.5 / 32)
    expected = [0.5, 0.786935, 0.213065, 0.5]
    np.testing.assert_allclose(fitted.predict(at, np.array([0, 1, 2, 99])), expected, atol=1e-6)


def test_effects_are_the_oracles():
    (z, s, y, _), _ = draw_rows(3000, 6, seed=5)
    cells = cells_of_rows(z, s, y, 7)
    fitted = fit_platt_per_value(cells)
    line = fitted.platt.slope * cells.logit + fitted.platt.level
    mean = np.average(line, weights=cells.weight)
    scale = np.sqrt(np.average((line - mean) ** 2, weights=cells.weight)) + 0.001
    for value in range(1, 7):
        own = cells.field_value_id == value

        def loss(theta, own=own):
            eta = line[own] + theta[0] + theta[1] * (line[own] - mean) / scale
            fit = cells.weight[own] * np.logaddexp(0, eta) - cells.response[own] * eta
            return fit.sum() + 0.5 * (theta**2).sum()

        level, slope = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-7}).x
        assert fitted.effects.level_V[value] == pytest.approx(level, abs=1e-5)
        assert fitted.effects.slope_V[value] == pytest.approx(slope, abs=1e-5)
    assert np.ptp(fitted.effects.slope_V[1:]) > 0.1


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_ridge_balances_the_residuals(cells):
    # at the maximum Σ(y - p) = ridge · level and Σ(y - p)·u = ridge · slope, for every value and any data
    fitted = fit_platt_per_value(cells)
    line = fitted.platt.slope * cells.logit + fitted.platt.level
    p = 1 / (1 + np.exp(-fitted.effects.apply(cells.field_value_id, line)))
    residual = cells.response - cells.weight * p
    u = (line - fitted.effects.mean) / fitted.effects.scale
    np.testing.assert_allclose(cells.sum_by_value(residual), fitted.effects.level_V, atol=1e-5)
    np.testing.assert_allclose(cells.sum_by_value(residual * u), fitted.effects.slope_V, atol=1e-5)


def test_ridge_is_fixed():
    # values that do not differ at all: empirical Bayes would shrink everything away, a fixed ridge follows the noise
    cells = cells_by_hand([(z, 0, 10, 1 + z % 3) for z in range(1, 31)], 31)
    level_V = fit_platt_per_value(cells).effects.level_V
    # 1 or 3 of 10 around p near .2: information 10·.16 = 1.6 against a ridge of 1, so about 1/(1.6 + 1) per response
    assert 0.3 < level_V[2] < 0.45
    assert -0.55 < level_V[3] < -0.3


def test_unseen_values_get_the_line_of_all():
    (z, s, y, _), _ = draw_rows(3000, 6, seed=5)
    cells = cells_of_rows(z, s, y, 9)  # ids 7 and 8 have no cells
    at = np.repeat(np.linspace(-6, 3, 50), 5)
    ids = np.tile([0, 7, 8, 9, -1], 50)
    np.testing.assert_allclose(fit_platt_per_value(cells).predict(at, ids), fit_platt(cells).predict(at, ids))


@pytest.mark.parametrize("label", [0, 1])
def test_a_value_of_one_class_has_a_finite_fit(label):
    cells = cells_by_hand([(1, 0, 100, 100 * label), (2, 0, 100, 50), (2, 32, 100, 60)], 3)
    fitted = fit_platt_per_value(cells)
    predicted = fitted.predict(np.zeros(2), np.array([1, 2]))
    assert abs(label - predicted[0]) < 0.05
    assert 0.4 < predicted[1] < 0.6
