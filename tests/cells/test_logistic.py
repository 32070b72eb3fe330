from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from adacalib.cells.logistic import (
    NotSettledError,
    compute_log_loss_sum,
    fit_level,
    fit_logistic,
    smooth_responses,
)


def draw_cells(seed, n_cells=60, n_features=2):
    rng = np.random.default_rng(seed)
    features = rng.normal(0, 1, (n_cells, n_features)) * [1, 30][:n_features] + [5, -200][:n_features]
    weight = rng.integers(1, 300, n_cells).astype(float)
    return features, weight, rng.binomial(weight.astype(int), rng.uniform(0, 1, n_cells)).astype(float)


def test_two_points_by_hand():
    # two cells, two unknowns: log-odds log(.2/.8) at 1 and log(.5/.5) = 0 at 3, so slope log(4)/2, level -1.5·log(4)
    slope, level = fit_logistic(np.array([[1.0], [3.0]]), np.array([10.0, 20.0]), np.array([2.0, 10.0]))
    assert slope == pytest.approx([np.log(4) / 2])
    assert level == pytest.approx(-1.5 * np.log(4))


def test_level_alone_is_the_mean():
    # 3 of 12: log(3/9); without features, and as the constant on top of given log-odds
    _, level = fit_logistic(np.zeros((2, 0)), np.array([4.0, 8.0]), np.array([1.0, 2.0]))
    assert level == pytest.approx(np.log(3 / 9))
    assert fit_level(np.full(2, 0.7), np.array([4.0, 8.0]), np.array([1.0, 2.0])) == pytest.approx(np.log(3 / 9) - 0.7)


def test_targets_by_hand():
    # N₊ = 3, N₋ = 7: a response counts 4/5, any other sample 1/9
    smoothed = smooth_responses(np.array([4.0, 6.0]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(smoothed, [0.8 + 3 / 9, 1.6 + 4 / 9])
    # the total is kept up to less than one sample
    assert abs(smoothed.sum() - 3) < 1


def test_loss_by_hand():
    # 10 samples at probability .2 and 4 responses: -(4·log(.2) + 6·log(.8))
    loss = compute_log_loss_sum(np.array([np.log(0.25)]), np.array([10.0]), np.array([4.0]))
    assert loss == pytest.approx(-(4 * np.log(0.2) + 6 * np.log(0.8)))
    assert compute_log_loss_sum(np.array([800.0, -800.0]), np.ones(2), np.array([1.0, 0.0])) == 0


@pytest.mark.parametrize("seed", range(5))
def test_newton_finds_what_bfgs_finds(seed):
    features, weight, response = draw_cells(seed)
    center, scale = features.mean(axis=0), features.std(axis=0)

    def loss(theta):
        eta = (features - center) / scale @ theta[:2] + theta[2]
        p = 1 / (1 + np.exp(-eta))
        gradient = np.append(((weight * p - response) @ features - (weight * p - response).sum() * center) / scale, 0)
        gradient[2] = (weight * p - response).sum()
        return float(np.sum(weight * np.log1p(np.exp(eta)) - response * eta)), gradient

    expected = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-7}).x
    slopes, level = fit_logistic(features, weight, response)
    np.testing.assert_allclose(slopes, expected[:2] / scale, rtol=1e-5, atol=1e-8)
    assert level == pytest.approx(expected[2] - expected[:2] / scale @ center, rel=1e-5, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 50))
def test_the_score_equations_hold(seed, n_cells):
    features, weight, response = draw_cells(seed, n_cells)
    response = smooth_responses(weight, response)
    slopes, level = fit_logistic(features, weight, response)
    error = 1 / (1 + np.exp(-(features @ slopes + level))) * weight - response
    assert abs(error.sum()) < 1e-6 * weight.sum()
    np.testing.assert_allclose(error @ (features - features.mean(axis=0)) / weight.sum(), 0, atol=1e-5)


def test_separable_and_one_class_labels_have_a_fit_with_smoothed_targets():
    feature, weight = np.linspace(-3, 3, 20)[:, None], np.full(20, 50.0)
    separated = weight * (feature[:, 0] > 0)
    slope, level = fit_logistic(feature, weight, smooth_responses(weight, separated))
    assert 1 < slope[0] < 100
    assert level == pytest.approx(0, abs=1e-6)
    slope, level = fit_logistic(feature, weight, smooth_responses(weight, np.zeros(20)))
    assert slope == pytest.approx([0], abs=1e-9)
    assert level == pytest.approx(np.log(1 / 1001))


def test_features_that_depend_on_each_other_share_their_effect():
    features, weight, response = draw_cells(1)
    alone, level = fit_logistic(features[:, :1], weight, response)
    both, same_level = fit_logistic(np.repeat(features[:, :1], 2, axis=1), weight, response)
    np.testing.assert_allclose(both, [alone[0] / 2] * 2, rtol=1e-6)
    assert same_level == pytest.approx(level)


def test_too_few_steps():
    features, weight, response = draw_cells(2)
    with pytest.raises(NotSettledError, match=r"60 cells did not settle within 2 Newton steps .* look for logits"):
        fit_logistic(features, weight, response, max_steps=2)


def test_rates_next_to_one_settle_as_those_next_to_zero_do():
    # 5 cells of up to 90 million samples, all but a few of them responses: w·p - Σy alone would drown in rounding
    feature = np.array([-10.0, -3.0, 0.0, 4.0, 9.0])[:, None]
    weight = np.array([3e3, 9e7, 0.4, 7e6, 20.0])
    missing = np.array([1.0, 15.0, 0.3, 2.0, 5.0])
    slope, level = fit_logistic(feature, weight, missing)
    mirrored_slope, mirrored_level = fit_logistic(feature, weight, weight - missing)
    np.testing.assert_allclose(mirrored_slope, -slope, rtol=1e-6)
    assert mirrored_level == pytest.approx(-level, rel=1e-6)
