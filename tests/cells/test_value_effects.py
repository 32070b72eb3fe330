from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from adacalib.cells import value_effects
from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.value_effects import MEAN_SPREAD, TAU_LIMITS, fit_value_effects
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells


def test_level_by_hand():
    # one value, 100 samples at l = 0, 75 responses, τ = 1: the level solves 75 - 100·σ(a) = a
    cells = cells_by_hand([(1, 0, 100, 75)], 3)
    effects = fit_value_effects(cells, np.zeros(1), slope=False, tau=(1.0, 1.0), free_mean=False)
    expected = brentq(lambda a: 75 - 100 / (1 + np.exp(-a)) - a, 0, 2)
    np.testing.assert_allclose(effects.level_V, [0, expected, 0], atol=1e-8)
    assert effects.slope_V.tolist() == [0, 0, 0]
    assert (effects.tau_level, effects.tau_slope) == (1.0, 0.0)
    assert effects.mean_level == 0


def test_mean_of_the_levels_by_hand():
    # As above, the mean m free under N(0, 1): 75 - 100·σ(a) = (a - m)/τ² = m/1. With τ = 1 m is a/2, with τ = .5
    # it is .8·a. The other ids have m.
    cells = cells_by_hand([(1, 0, 100, 75)], 3)
    assert MEAN_SPREAD == 1
    for tau, share in ((1.0, 1 / 2), (0.5, 4 / 5)):
        effects = fit_value_effects(cells, np.zeros(1), slope=False, tau=(tau, 1.0))
        level = brentq(lambda a, share=share: 75 - 100 / (1 + np.exp(-a)) - share * a, 0, 2)
        np.testing.assert_allclose(effects.level_V, [share * level, level, share * level], atol=1e-5)
        assert effects.mean_level == effects.level_V[0]
    # many values with endless samples, levels .2 and .6 in equal numbers: m·(1 + τ²/V) is their mean
    rows = [(z, 0, 10**8, round(10**8 / (1 + np.exp(-0.2 - 0.4 * (z % 2))))) for z in range(1, 101)]
    effects = fit_value_effects(cells_by_hand(rows, 101), np.zeros(100), slope=False, tau=(0.2, 1.0))
    assert effects.mean_level == pytest.approx(0.4 / (1 + 0.2**2 / 100), abs=1e-6)


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
    expected, _, mean, scale, mean_level = oracle.value_effects(by_value, tau=(tau_level, tau_slope))
    np.testing.assert_allclose([effects.mean, effects.scale], [mean, scale], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([effects.level_V, effects.slope_V], expected, rtol=1e-3, atol=2e-3)
    assert effects.mean_level == pytest.approx(mean_level, rel=1e-3, abs=2e-3)
    # without a mean of its own the prior is about l
    effects = fit_value_effects(cells, curve_logit, tau=(tau_level, tau_slope), free_mean=False)
    expected, *_ = oracle.value_effects(by_value, tau=(tau_level, tau_slope), free_mean=False)
    np.testing.assert_allclose([effects.level_V, effects.slope_V], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("slope", [True, False])
def test_estimated_tau_is_the_oracles(slope):
    (z, s, y, _), _ = draw_rows(4000, 12, seed=11)
    cells = cells_of_rows(z, s, y, 13)
    effects = fit_value_effects(cells, 0.8 * cells.logit - 0.3, slope=slope)
    by_value = list_by_value(cells, 0.8 * cells.logit - 0.3, cells.weight, cells.response)
    expected, taus, _, _, mean_level = oracle.value_effects(by_value, slope=slope)
    np.testing.assert_allclose([effects.level_V, effects.slope_V], expected, atol=1e-3)
    assert effects.mean_level == pytest.approx(mean_level, abs=1e-3)
    assert abs(mean_level) > 0.1
    np.testing.assert_allclose(effects.tau_level, taus[0], rtol=2e-3)
    if slope:
        np.testing.assert_allclose(effects.tau_slope, taus[1], rtol=5e-3)


def test_where_the_search_starts_does_not_decide_where_it_ends(monkeypatch):
    # the first bend is not there: MacKay's update alone takes some per cent off its τ per round, and ends at .014
    (z, s, y, _), _ = draw_rows(20000, 30, seed=6)
    cells = cells_of_rows(z, s, y, 31)
    found = []
    for start in (0.05, 0.3, 1.0):
        monkeypatch.setattr(value_effects, "_TAU_START", start)
        effects = fit_value_effects(cells, 0.8 * cells.logit - 0.3, shape=True)
        found.append([effects.tau_level, effects.tau_slope, *effects.tau_shape])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=0.01)
    assert found[0][2] == pytest.approx(TAU_LIMITS[0])


@settings(max_examples=30, deadline=None)
@given(some_cells(), st.floats(0.005, 5), st.floats(0.005, 5), st.floats(0.1, 4), st.floats(-20, 20))
def test_every_value_reaches_its_maximum(cells, tau_level, tau_slope, stretch, offset):
    # whatever the offsets, the penalised likelihood's gradient is 0: Newton neither cycles nor stops early
    curve_logit = stretch * cells.logit + offset
    effects = fit_value_effects(cells, curve_logit, tau=(tau_level, tau_slope))
    residual = cells.response - cells.weight / (1 + np.exp(-effects.apply(cells.field_value_id, curve_logit)))
    u = (curve_logit - effects.mean) / effects.scale
    deviation_V = effects.level_V - effects.mean_level
    for theta_V, tau, pull in ((deviation_V, tau_level, residual), (effects.slope_V, tau_slope, residual * u)):
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
        assert abs(effects.mean_level - effect * level[1:].mean()) < 0.02
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


def test_rare_values_shrink_towards_their_own_typical_level():
    # 20 frequent values at 0, the ground of the curve, and 3,000 rare ones at .8 ± .3 with 8 samples each
    rng = np.random.default_rng(3)
    level = np.concatenate([[0], rng.normal(0, 0.3, 20), rng.normal(0.8, 0.3, 3000)])
    n = np.concatenate([[0], np.full(20, 20_000), np.full(3000, 8)])
    y = rng.binomial(n, 1 / (1 + np.exp(1 - level)))
    rows = [(z, -32, n[z], y[z]) for z in range(1, 3021)]
    cells = cells_by_hand(rows, 3022)  # id 3021 has no cells
    curve_logit = np.full(len(cells), -1.0)
    free = fit_value_effects(cells, curve_logit, slope=False)
    fixed = fit_value_effects(cells, curve_logit, slope=False, free_mean=False)
    assert 0.7 < free.mean_level < 0.9
    assert free.level_V[0] == free.level_V[3021] == free.mean_level
    rare = slice(21, 3021)
    # the best possible is about the spread .3² shrunk by 8 samples; a prior about 0 adds its bias to it
    error, biased = (np.mean((fit.level_V[rare] - level[rare]) ** 2) for fit in (free, fixed))
    assert error < 0.1 < 1.4 * error < biased
    assert abs(np.mean(free.level_V[rare] - level[rare])) < 0.05 < np.mean(level[rare] - fixed.level_V[rare])
    assert free.tau_level < fixed.tau_level
    # frequent values have their own level either way
    np.testing.assert_allclose(free.level_V[1:21], fixed.level_V[1:21], atol=0.01)


def test_a_fixed_tau_still_estimates_the_mean():
    rng = np.random.default_rng(4)
    y = rng.binomial(50, 1 / (1 + np.exp(-0.5 - rng.normal(0, 0.3, 400))))
    cells = cells_by_hand([(z, 0, 50, y[z - 1]) for z in range(1, 401)], 401)
    for tau in (0.01, 0.3, 2.0):
        effects = fit_value_effects(cells, np.zeros(400), slope=False, tau=(tau, 1.0))
        assert effects.tau_level == tau
        assert effects.mean_level == pytest.approx(0.5, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(some_cells(max_cells=20), st.floats(-3, 3), st.floats(0.05, 2))
def test_the_mean_follows_a_shift_of_l_up_to_its_own_prior(cells, shift, tau):
    # the levels take up what l lacks; the mean's prior about 0 alone makes a difference, and less of it the weaker τ
    moved, there = (fit_value_effects(cells, cells.logit + s, slope=False, tau=(tau, 1.0)) for s in (shift, 0.0))
    total_V = moved.level_V + shift - there.level_V
    seen = np.unique(cells.field_value_id)
    assert np.all(total_V[seen] * shift >= -1e-2 * abs(shift) - 1e-6)
    assert np.all(np.abs(total_V[seen]) <= abs(shift) + 1e-2)
    # at the joint maximum the deviations pull the mean as hard as its prior does
    pull = np.sum(moved.level_V[seen] - moved.mean_level) / tau**2
    assert pull == pytest.approx(moved.mean_level / MEAN_SPREAD**2, abs=0.03 * (1 + len(seen) / tau))


def test_the_mean_does_not_run_away_from_seldom_responses():
    # One frequent value with a rate of .9 % carries the curve; 8,000 rare ones respond half the time. At l the
    # information is so small that a full Newton step of the mean leads 44 logits too far, and the next one farther
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 8000)
    cells = cells_by_hand([(1, -150, 10**6, 9200), *((z + 2, -150, 1, y[z]) for z in range(8000))], 8002)
    typical = np.log(y.sum() / (8000 - y.sum())) + 149.5 / 32
    for tau in (None, (0.05, 1.0), (1.0, 1.0)):
        effects = fit_value_effects(cells, cells.logit, tau=tau)
        assert np.all(np.isfinite(effects.level_V))
        # with τ = .05 the frequent value, 4.7 logits away, holds the mean back
        assert typical - 1.0 < effects.mean_level < typical + 0.1


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("tau", [None, (0.01, 0.01), (3.0, 3.0)])
def test_labels_of_one_class_stay_finite(label, tau):
    cells = cells_by_hand([(z, 16 * (z % 5), 1 + z % 3 * 500, label * (1 + z % 3 * 500)) for z in range(1, 40)], 41)
    for offset in (-6.0, 0.0, 6.0):
        effects = fit_value_effects(cells, cells.logit + offset, tau=tau)
        assert np.all(np.isfinite([effects.level_V, effects.slope_V]))
        # of one sign, and no farther than a prior N(0, 1) lets 20,000 equal labels pull it from the other side
        assert 0 < (2 * label - 1) * effects.mean_level < 15


def test_values_of_one_class_and_id_0():
    cells = cells_by_hand([(0, 0, 50, 50), (1, 0, 50, 0), (2, 0, 50, 50), (3, 0, 50, 25)], 6)
    effects = fit_value_effects(cells, cells.logit)
    assert effects.level_V[0] == effects.level_V[4] == effects.level_V[5] == effects.mean_level
    assert effects.mean_level == pytest.approx(-0.5 / 32, abs=0.02)
    assert effects.slope_V[0] == effects.slope_V[4] == 0
    assert np.all(np.isfinite([effects.level_V, effects.slope_V]))
    assert effects.level_V[1] < effects.level_V[3] < effects.level_V[2]
    only_unseen = fit_value_effects(cells.select(cells.field_value_id == 0), cells.logit[:1])
    assert np.all(only_unseen.level_V == 0)


def test_both_switched_off():
    cells = cells_by_hand([(1, 0, 50, 1), (2, 0, 50, 40)], 3)
    effects = fit_value_effects(cells, cells.logit, level=False, slope=False)
    assert np.all(effects.level_V == 0)
    assert np.all(effects.slope_V == 0)
    assert (effects.tau_level, effects.tau_slope, effects.mean_level) == (0.0, 0.0, 0.0)
    # nor is there a mean of levels that are not there
    slopes = fit_value_effects(cells, cells.logit, level=False)
    assert np.all(slopes.level_V == 0) and slopes.mean_level == 0


def test_faults():
    cells = cells_by_hand([(1, 0, 50, 1)], 2)
    with pytest.raises(ValueError, match=r"tau is \(0.0, 1.0\).*must be positive"):
        fit_value_effects(cells, cells.logit, tau=(0.0, 1.0))
    with pytest.raises(ValueError, match=r"1 of 1 log-odds before the effects are not finite.*smooth or clip"):
        fit_value_effects(cells, np.array([-np.inf]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_value_effects(cells.select(np.array([False])), np.zeros(0))
