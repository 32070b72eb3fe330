from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.beta import BetaCalibration, fit_beta
from adacalib.cells.logit_cells import LOGIT_LIMIT
from tests.baselines.oracle_values import read_oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, some_cells

LINE = np.linspace(-20, 20, 401)
ANY = np.zeros(len(LINE), np.int64)


def test_curve_by_hand():
    # p̂ = .8: σ(2·log .8 - .5·log .2 + .3); odds = .8² / sqrt(.2) · e^.3 = .64 / .4472136 · 1.3498588 = 1.9317607
    curve = BetaCalibration(a=2.0, b=0.5, level=0.3)
    predicted = curve.predict(np.log([4.0, 0.25]), ANY[:2])
    assert predicted[0] == pytest.approx(1.9317607 / 2.9317607, rel=1e-6)
    # p̂ = .2: odds = .2² / sqrt(.8) · e^.3 = .04 / .8944272 · 1.3498588 = .0603675
    assert predicted[1] == pytest.approx(0.0603675 / 1.0603675, rel=1e-5)


def test_two_scores_by_hand():
    # 20 and 80 of 100 responses at scores 2 apart. Smoothed targets count a response 101/102, its absence 1/102:
    # rates (20·101 + 80)/10200 = .2058824 and .7941176, log-odds ∓1.3499267; so a = b = 2·1.3499267/2
    curve = fit_beta(cells_by_hand([(1, 0, 100, 20), (1, 64, 100, 80)], 2))
    assert curve.a == curve.b == pytest.approx(1.3499267, rel=1e-6)
    np.testing.assert_allclose(curve.predict(np.array([0.5, 64.5]) / 32, ANY[:2]), [0.2058824, 0.7941176], rtol=1e-6)


def test_one_score_gets_a_level():
    # 30 of 100: targets (30·31/32 + 70/72)/100 = .3003472; a = b = 1 and the level does the rest
    curve = fit_beta(cells_by_hand([(1, 40, 100, 30)], 2))
    assert (curve.a, curve.b) == (1.0, 1.0)
    assert curve.predict(np.array([40.5 / 32]), ANY[:1])[0] == pytest.approx(0.3003472, rel=1e-6)


@pytest.mark.parametrize("name", ["even", "low", "a_is_negative", "b_is_negative"])
def test_beta_is_betacals(name):
    cells, oracle = read_oracle(name, "betacal")
    curve = fit_beta(cells)
    on_the_same_targets = oracle["smoothed"]
    assert curve.a == pytest.approx(on_the_same_targets["a"], abs=1e-6)
    assert curve.b == pytest.approx(on_the_same_targets["b"], abs=1e-6)
    predicted = curve.predict(cells.logit, cells.field_value_id)
    np.testing.assert_allclose(predicted, on_the_same_targets["predicted"], atol=1e-7)
    # without smoothing betacal differs by one sample's worth of doubt per class
    difference = np.abs(predicted - oracle["labels"]["predicted"]).max()
    assert 1e-5 < difference < 1 / min(cells.response.sum(), (cells.weight - cells.response).sum())


def test_the_negative_coefficient_is_dropped():
    # the oracle's data sets do what their names say, so the refit is really tested above
    curves = {name: fit_beta(read_oracle(name, "betacal")[0]) for name in ("low", "a_is_negative", "b_is_negative")}
    assert curves["a_is_negative"].a == 0 < curves["a_is_negative"].b
    assert curves["b_is_negative"].b == 0 < curves["b_is_negative"].a
    assert min(curves["low"].a, curves["low"].b) > 1


def test_a_falling_curve_becomes_the_mean():
    # 90, 50, 10 of 100: both coefficients are negative, also alone; the targets' mean is .5
    curve = fit_beta(cells_by_hand([(1, -32, 100, 90), (1, 0, 100, 50), (1, 32, 100, 10)], 2))
    assert (curve.a, curve.b) == (0.0, 0.0)
    np.testing.assert_allclose(curve.predict(LINE, ANY), 0.5)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_curve_never_falls(cells):
    curve = fit_beta(cells)
    assert curve.a >= 0
    assert curve.b >= 0
    assert np.all(np.diff(curve.predict(LINE, ANY)) >= -1e-12)


@pytest.mark.parametrize("logit", [[-2, -1, 1, 2], [-LOGIT_LIMIT, -LOGIT_LIMIT, LOGIT_LIMIT, LOGIT_LIMIT]])
def test_separable_classes_have_a_finite_fit(logit):
    curve = fit_beta(cells_of_rows([1] * 4, logit, [0, 0, 1, 1], 2))
    assert np.all(np.isfinite([curve.a, curve.b, curve.level]))
    predicted = curve.predict(np.array(logit, float), ANY[:4])
    assert np.all((predicted > 0.5) == [False, False, True, True])
