from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from adacalib.baselines.platt import Platt, fit_platt
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def log_odds(p):
    return np.log(p / (1 - p))


def test_platt_by_hand():
    # two cells, at -31.5/32 and .5/32: 10 of 40 and 20 of 40 responses, N₊ = 30, N₋ = 50. With a response counting
    # 31/32 and any other sample 1/52: (10·31/32 + 30/52)/40 and (20·31/32 + 20/52)/40, met exactly by two parameters
    fitted = fit_platt(cells_by_hand([(1, -32, 40, 10), (2, 0, 40, 20)], 3))
    low, high = (10 * 31 / 32 + 30 / 52) / 40, (20 * 31 / 32 + 20 / 52) / 40
    predicted = fitted.predict(np.array([-31.5, 0.5]) / 32, np.zeros(2, np.int64))
    np.testing.assert_allclose(predicted, [low, high])
    assert fitted.slope == pytest.approx(log_odds(high) - log_odds(low))


def test_prediction_by_hand():
    # σ(2·1 - 1) = σ(1)
    assert Platt(2.0, -1.0).predict(np.ones(1), np.zeros(1, np.int64)) == pytest.approx(1 / (1 + np.exp(-1)))


@settings(max_examples=25, deadline=None)
@given(some_cells())
def test_platt_is_the_oracles(cells):
    if np.ptp(cells.logit) < 1 / 32:
        return
    positive = cells.response.sum()
    negative = cells.weight.sum() - positive
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)

    def loss(theta):
        total = 0.0
        for s, n, y in zip(cells.logit, cells.weight, cells.response, strict=True):
            eta = theta[0] * s + theta[1]
            target = y * high + (n - y) * low
            total += n * np.logaddexp(0, eta) - target * eta
        return total / cells.weight.sum()

    fitted = fit_platt(cells)
    expected = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-7})
    assert loss([fitted.slope, fitted.level]) <= expected.fun + 1e-9
    line = np.linspace(cells.logit.min(), cells.logit.max(), 9)
    predicted = 1 / (1 + np.exp(-(expected.x[0] * line + expected.x[1])))
    np.testing.assert_allclose(fitted.predict(line, np.zeros(9, np.int64)), predicted, atol=1e-3)


def test_platt_recovers_its_own_kind():
    rng = np.random.default_rng(4)
    s = rng.normal(-2, 1.5, 200_000)
    y = (rng.random(200_000) < 1 / (1 + np.exp(-(0.6 * s - 0.9)))).astype(np.int64)
    fitted = fit_platt(cells_of_rows(np.ones(200_000, np.int64), s, y, 2))
    assert fitted.slope == pytest.approx(0.6, abs=0.02)
    assert fitted.level == pytest.approx(-0.9, abs=0.03)


def test_a_predictor_the_wrong_way_round_is_turned_round():
    (z, s, y, _), _ = draw_rows(5000, 4, seed=3)
    right, wrong = fit_platt(cells_of_rows(z, s, y, 5)), fit_platt(cells_of_rows(z, -s, y, 5))
    assert right.slope > 0.3
    assert wrong.slope == pytest.approx(-right.slope, abs=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_one_sample_of_doubt(label):
    fitted = fit_platt(cells_of_rows([1] * 98, np.linspace(-3, 3, 98), [label] * 98, 2))
    assert fitted.slope == pytest.approx(0, abs=1e-9)
    assert fitted.level == pytest.approx(log_odds(0.99 if label else 0.01))


def test_equal_logits_move_the_level_only():
    # 3 of 12 at .5/32: a response counts 4/5, any other sample 1/11
    fitted = fit_platt(cells_by_hand([(1, 0, 12, 3)], 2))
    assert fitted.slope == 1
    assert fitted.level == pytest.approx(log_odds((3 * 0.8 + 9 / 11) / 12) - 0.5 / 32)
