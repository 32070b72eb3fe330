from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.value_effects import TAU_LIMITS, fit_value_effects
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells


def test_level_by_hand():
    # one value, 100 samples at l = 0, 75 responses, τ = 1: the level solves 75 - 100·σ(a) = a
    cells = cells_by_hand([(1, 0, 100, 75)], 3)
    effects = fit_value_effects(cells, np.zeros(1), slope=False, tau=(1.0, 1.0))
    expected = brentq(lambda a: 75 - 100 / (1 + np.exp(-a)) - a, 0, 2)
    np.testing.assert_allclose(effects.level_V, [0, expected, 0], atol=1e-8)
    assert effects.slope_V.tolist() == [0, 0, 0]
    assert (effects.tau_level, effects.tau_slope) == (1.0, 0.0)


def test_mean_scale_and_apply_by_hand():
    # l = -1 with weight 3, l = 3 with weight 1: mean 0, variance (3·1 + 9)/4 = 3
    cells = cells_by_hand([(1, -32, 3, 1), (2, 96, 1, 1)], 3)
    effects = fit_value_effects(cells, np.array([-1, 3.0]), tau=(1.0, 1.0))
    assert effects.mean == 0
    assert effects.scale == pytest.approx(np.sqrt(3) + 0.001)
    effects = replace(effects, level_V=np.array([0, 0.5, -1]), slope_V=np.array([0, 0.1, 0.2]), mean=1.0, scale=2.0)
    # id 0: l itself; id 1 at l = 3: 3 + .5 + .1·1; id 2 at l = -1: -1 - 1 + .2·(-1)
    np.testing.assert_allclose(effects.apply(np.array([0, 1, 2]), np.array([7, 3, -1.0])), [7, 3.6, -2.2])
    assert effects.apply(np.arange(3)[:, None], np.zeros((3, 4))).shape == (3, 4)


@settings(max_examples=25, deadline=None)
@given(some_cells(max_cells=25), st.floats(0.01, 4), st.floats(0.01, 4), st.floats(0.1, 2))
def test_effects_of_fixed_tau_are_the_oracles(cells, tau_level, tau_slope, stretch):
    curve_logit = stretch * cells.logit
    effects = fit_value_effects(cells, curve_logit, tau=(tau_level, tau_slope))
    by_value = list_by_value(cells, curve_logit, cells.weight, cells.response)
    expected, _, mean, scale = oracle.value_effects(by_value, tau=(tau_level, tau_slope))
    np.testing.assert_allclose([effects.mean, effects.scale], [mean, scale], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([effects.level_V, effects.slope_V], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("slope", [True, False])
def test_estimated_tau_is_the_oracles(slope):
    (z, s, y, _), _ = draw_rows(4000, 12, seed=11)
    cells = cells_of_rows(z, s, y, 13)
    effects = fit_value_effects(cells, 0.8 * cells.logit - 0.3, slope=slope)
    by_value = list_by_value(cells, 0.8 * cells.logit - 0.3, cells.weight, cells.response)
    expected, taus, _, _ = oracle.value_effects(by_value, slope=slope)
    np.testing.assert_allclose([effects.level_V, effects.slope_V], expected, atol=2e-4)
    np.testing.assert_allclose(effects.tau_level, taus[0], rtol=2e-3)
    if slope:
        np.testing.assert_allclose(effects.tau_slope, taus[1], rtol=2e-3)


@settings(max_examples=30, deadline=None)
@given(some_cells(), st.floats(0.005, 5), st.floats(0.005, 5), st.floats(0.1, 4), st.floats(-20, 20))
def test_every_value_reaches_its_maximum(cells, tau_level, tau_slope, stretch, offset):
    # whatever the offsets, the penalised likelihood's gradient is 0: Newton neither cycles nor stops early
    curve_logit = stretch * cells.logit + offset
    effects = fit_value_effects(cells, curve_logit, tau=(tau_level, tau_slope))
    residual = cells.response - cells.weight / (1 + np.exp(-effects.apply(cells.field_value_id, curve_logit)))
    u = (curve_logit - effects.mean) / effects.scale
    for theta_V, tau, pull in ((effects.level_V, tau_level, residual), (effects.slope_V, tau_slope, residual * u)):
        size_V = 1 + cells.sum_by_value(np.abs(pull))
        np.testing.assert_allclose((cells.sum_by_value(pull) - theta_V / tau**2) / size_V, 0, atol=1e-6)


def test_tau_is_recovered_and_falls_to_its_limit_without_effect():
    rng = np.random.default_rng(0)
    level = rng.normal(0, 0.6, 301)
    z = np.repeat(np.arange(1, 301), 40)
    cell = np.tile(np.arange(-60, 20, 2), 300)
    n = np.full(len(z), 30)
    for effect, low, high in ((1.0, 0.52, 0.68), (0.0, TAU_LIMITS[0], 0.05)):
        p = 1 / (1 + np.exp(-(cell / 32 + effect * level[z])))
        y = rng.binomial(n, p)
        cells = cells_by_hand(list(zip(z, cell, n, y, strict=True)), 301)
        effects = fit_value_effects(cells, cells.cell / 32)
        assert low <= effects.tau_level <= high
        assert effects.tau_slope < 0.06
    assert np.abs(effects.level_V).max() < 0.02


def test_more_evidence_is_shrunk_less():
    cells = cells_by_hand([(1, 0, 10, 8), (2, 0, 1000, 800), (3, 0, 100, 50), (4, 0, 100, 20)], 5)
    effects = fit_value_effects(cells, np.zeros(4), slope=False)
    assert 0 < effects.level_V[1] < effects.level_V[2] < np.log(4)


def test_repeated_rows_equal_weight_two():
    (z, s, y, _), _ = draw_rows(2000, 6, seed=2)
    repeated = cells_of_rows(np.tile(z, 2), np.tile(s, 2), np.tile(y, 2), 7)
    weighted = cells_of_rows(z, s, y, 7, weight=np.full(len(z), 2.0))
    np.testing.assert_allclose(
        fit_value_effects(repeated, repeated.logit).level_V,
        fit_value_effects(weighted, weighted.logit).level_V,
        atol=1e-9,
    )


def test_values_of_one_class_and_id_0():
    cells = cells_by_hand([(0, 0, 50, 50), (1, 0, 50, 0), (2, 0, 50, 50), (3, 0, 50, 25)], 6)
    effects = fit_value_effects(cells, cells.logit)
    assert effects.level_V[0] == effects.level_V[4] == effects.level_V[5] == 0
    assert np.all(np.isfinite([effects.level_V, effects.slope_V]))
    assert effects.level_V[1] < effects.level_V[3] < effects.level_V[2]
    only_unseen = fit_value_effects(cells.select(cells.field_value_id == 0), cells.logit[:1])
    assert np.all(only_unseen.level_V == 0)


def test_both_switched_off():
    cells = cells_by_hand([(1, 0, 50, 1), (2, 0, 50, 40)], 3)
    effects = fit_value_effects(cells, cells.logit, level=False, slope=False)
    assert np.all(effects.level_V == 0)
    assert np.all(effects.slope_V == 0)
    assert (effects.tau_level, effects.tau_slope) == (0.0, 0.0)


def test_faults():
    cells = cells_by_hand([(1, 0, 50, 1)], 2)
    with pytest.raises(ValueError, match=r"tau is \(0.0, 1.0\).*must be positive"):
        fit_value_effects(cells, cells.logit, tau=(0.0, 1.0))
    with pytest.raises(ValueError, match=r"1 of 1 log-odds before the effects are not finite.*smooth or clip"):
        fit_value_effects(cells, np.array([-np.inf]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_value_effects(cells.select(np.array([False])), np.zeros(0))
