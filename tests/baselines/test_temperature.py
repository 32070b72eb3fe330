from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize_scalar

from adacalib.baselines.temperature import Temperature, fit_temperature
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def test_temperature_by_hand():
    # one cell at -32.5/32 with 200 of 1000: a response counts 201/202, any other sample 1/802; its log-odds are met
    # exactly by T = logit / log-odds
    fitted = fit_temperature(cells_by_hand([(1, -33, 1000, 200)], 2))
    mean = (200 * 201 / 202 + 800 / 802) / 1000
    assert fitted.temperature == pytest.approx((-32.5 / 32) / np.log(mean / (1 - mean)))
    assert fitted.predict(np.array([-32.5 / 32]), np.zeros(1, np.int64)) == pytest.approx(mean)


def test_prediction_by_hand():
    # σ(3/2)
    assert Temperature(2.0).predict(np.array([3.0]), np.zeros(1, np.int64)) == pytest.approx(1 / (1 + np.exp(-1.5)))


@settings(max_examples=25, deadline=None)
@given(some_cells())
def test_temperature_is_the_oracles(cells):
    positive = cells.response.sum()
    negative = cells.weight.sum() - positive
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)

    def loss(log_temperature):
        total = 0.0
        for s, n, y in zip(cells.logit, cells.weight, cells.response, strict=True):
            eta = s / np.exp(log_temperature)
            total += n * np.logaddexp(0, eta) - (y * high + (n - y) * low) * eta
        return total / cells.weight.sum()

    limits = np.log([0.01, 100.0])
    line = np.linspace(*limits, 200)
    best = int(np.argmin([loss(point) for point in line]))
    around = (line[max(best - 1, 0)], line[min(best + 1, 199)])
    expected = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-10})
    temperature = fit_temperature(cells).temperature
    assert 0.01 <= temperature <= 100
    assert loss(np.log(temperature)) <= expected.fun + 1e-9


@pytest.mark.parametrize("true_temperature", [0.5, 1.0, 3.0])
def test_temperature_recovers_its_own_kind(true_temperature):
    rng = np.random.default_rng(4)
    s = rng.normal(-1, 2, 200_000)
    y = (rng.random(200_000) < 1 / (1 + np.exp(-s / true_temperature))).astype(np.int64)
    fitted = fit_temperature(cells_of_rows(np.ones(200_000, np.int64), s, y, 2))
    assert fitted.temperature == pytest.approx(true_temperature, rel=0.02)


def test_responses_that_deny_the_scores_end_at_the_flat_limit():
    # scores above a half and no response: even T = 100 is not flat enough
    (z, s, _, _), _ = draw_rows(5000, 4, seed=3)
    assert fit_temperature(cells_of_rows(z, np.abs(s), np.zeros(5000), 5)).temperature == 100
    # the same below a half is what the scores say, only more so
    assert fit_temperature(cells_of_rows(z, -np.abs(s), np.zeros(5000), 5)).temperature < 1


def test_a_lone_response_of_many_ends_at_the_sharp_limit():
    # one cell at log-odds 0.5/32 whose responses ask for log-odds of 4.6: T = .0034 is beyond the limit
    assert fit_temperature(cells_by_hand([(1, 0, 98, 98)], 2)).temperature == 0.01


def test_logits_of_0_say_nothing():
    assert fit_temperature(cells_of_rows([1] * 4, [0.0] * 4, [0, 1, 1, 1], 2)).temperature == 1
