from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.hierarchy import ParentError, fit_hierarchical_effects
from adacalib.cells.value_effects import TAU_LIMITS, fit_value_effects
from tests.cells.small_world import cells_by_hand, cells_of_rows


def draw_cells(seed, n_parents=25, per_parent=30, sd_parent=0.5, sd_value=0.3, n=80, rate_logit=-2.0):
    """(cells, parent_V, level_V): n samples per value on average, spread over 4 cells."""
    rng = np.random.default_rng(seed)
    parent_V = np.append(0, np.repeat(np.arange(1, n_parents + 1), per_parent))
    parent_P = np.append(0, rng.normal(0, sd_parent, n_parents))
    level_V = parent_P[parent_V] + np.append(0, rng.normal(0, sd_value, len(parent_V) - 1))
    z = np.repeat(np.arange(1, len(parent_V)), 4)
    cell = np.tile(np.array([-96, -80, -56, -40]), len(parent_V) - 1)
    counts = rng.integers(1, n // 2, len(z))
    eta = (cell + 0.5) / 32 + (rate_logit + 2) + level_V[z]
    y = rng.binomial(counts, 1 / (1 + np.exp(-eta)))
    return cells_by_hand(list(zip(z, cell, counts, y, strict=True)), len(parent_V)), parent_V, level_V


def test_two_storeys_by_hand():
    # Endless samples, so each value's level x is known: .7, .3 (parent 1) and -.3, -.7 (parent 2). Maximum likelihood
    # of the balanced nested model: τ_value² = Σ(x - mean)²/(2·(2 - 1)) = .16/2 = .08; mean² = .25 = τ_parent² + .08/2,
    # so τ_parent² = .21. Parent: ±.5·(2/.08)/(2/.08 + 1/.21) = ±.42.
    level = np.array([0.7, 0.3, -0.3, -0.7])
    n = 10**9
    rows = [(z + 1, 0, n, round(n / (1 + np.exp(-x)))) for z, x in enumerate(level)]
    fit = fit_hierarchical_effects(cells_by_hand(rows, 5), np.zeros(4), np.array([0, 1, 1, 2, 2]), slope=False)
    np.testing.assert_allclose([fit.tau_parent**2, fit.tau_value**2], [0.21, 0.08], rtol=0.03)
    np.testing.assert_allclose(fit.parent_level_P, [0, 0.42, -0.42], rtol=0.01)
    np.testing.assert_allclose(fit.effects.level_V[1:], level, atol=1e-5)
    assert fit.effects.tau_level == fit.tau_value


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5), st.floats(0, 1.5))
def test_levels_are_the_joint_maximum_of_the_oracle(seed, n_parents, per_parent, spread):
    cells, parent_V, _ = draw_cells(seed, n_parents, per_parent, sd_parent=spread)
    fit = fit_hierarchical_effects(cells, cells.logit, parent_V, slope=False)
    mean = fit.effects.mean_level
    assert mean == fit_value_effects(cells, cells.logit, slope=False).mean_level

    # around the mean of the plain levels the penalised likelihood over all parents and deviations at once, by BFGS
    def loss(theta):
        parent, deviation = theta[:n_parents], theta[n_parents:]
        eta = cells.logit + mean + (parent[parent_V[1:] - 1] + deviation)[cells.field_value_id - 1]
        pull_V = np.bincount(cells.field_value_id - 1, cells.response - cells.weight / (1 + np.exp(-eta)))
        pull_P = np.bincount(parent_V[1:] - 1, pull_V)
        value = np.sum(cells.weight * np.logaddexp(0, eta) - cells.response * eta)
        value += np.sum(parent**2) / (2 * fit.tau_parent**2) + np.sum(deviation**2) / (2 * fit.tau_value**2)
        gradient = [parent / fit.tau_parent**2 - pull_P, deviation / fit.tau_value**2 - pull_V]
        return value, np.concatenate(gradient)

    best = minimize(loss, np.zeros(n_parents + cells.n_values - 1), jac=True, method="BFGS", options={"gtol": 1e-7}).x
    parent_P = np.append(0, best[:n_parents])
    np.testing.assert_allclose(fit.parent_level_P, parent_P, atol=5e-3)
    np.testing.assert_allclose(fit.effects.level_V[1:], mean + parent_P[parent_V[1:]] + best[n_parents:], atol=5e-3)


def test_both_taus_are_recovered_and_sparse_values_gain():
    cells, parent_V, level_V = draw_cells(1)
    fit = fit_hierarchical_effects(cells, cells.logit, parent_V)
    assert 0.38 < fit.tau_parent < 0.65
    assert 0.22 < fit.tau_value < 0.38
    plain = fit_value_effects(cells, cells.logit)
    error = np.mean((fit.effects.level_V - level_V) ** 2)
    assert error < 0.7 * np.mean((plain.level_V - level_V) ** 2)


@pytest.mark.parametrize(("n_parents", "per_parent", "largest"), [(20, 20, 0.08), (300, 1, 0.12), (150, 2, 0.25)])
def test_without_parent_effect_or_without_siblings_the_result_is_close_to_plain(n_parents, per_parent, largest):
    cells, parent_V, _ = draw_cells(2, n_parents, per_parent, sd_parent=0.0, sd_value=0.5, n=300)
    fit = fit_hierarchical_effects(cells, cells.logit, parent_V)
    plain = fit_value_effects(cells, cells.logit)
    assert np.max(np.abs(fit.effects.level_V - plain.level_V)) < largest
    # one value per parent: only the sum of the two variances is known
    assert np.hypot(fit.tau_parent, fit.tau_value) == pytest.approx(plain.tau_level, rel=0.05)
    if per_parent == 20:
        assert fit.tau_parent < 0.12


def test_values_without_deviations_become_their_parents():
    cells, parent_V, level_V = draw_cells(3, sd_value=0.0)
    fit = fit_hierarchical_effects(cells, cells.logit, parent_V)
    assert fit.tau_value < 0.12
    plain = fit_value_effects(cells, cells.logit)
    assert np.mean((fit.effects.level_V - level_V) ** 2) < 0.2 * np.mean((plain.level_V - level_V) ** 2)


def test_sparse_unseen_and_parentless_values():
    # parent 1 is high, parent 2 low, 40 values each; id 81 of parent 1 has one sample, id 82 of parent 1 none,
    # id 83 one sample and no parent, id 84 a parent nobody has seen
    rows = [(z, 0, 2000, (1400 if z <= 40 else 600) + 10 * (z % 7 - 3)) for z in range(1, 81)]
    cells = cells_by_hand([*rows, (81, 0, 1, 0), (83, 0, 1, 0)], 85)
    parent_V = np.array([0] + [1] * 40 + [2] * 40 + [1, 1, 0, 3])
    fit = fit_hierarchical_effects(cells, np.zeros(len(cells)), parent_V)
    # as many high as low values and two samples without a response: a mean just below 0
    mean = fit.effects.mean_level
    assert -0.03 < mean < 0
    high = fit.parent_level_P[1] + mean
    assert high == pytest.approx(np.log(1400 / 600), abs=0.05)
    assert fit.effects.level_V[82] == high
    assert high - 0.1 < fit.effects.level_V[81] < high
    assert mean - 0.1 < fit.effects.level_V[83] < mean
    assert fit.parent_level_P[3] == fit.parent_level_P[0] == 0
    assert fit.effects.level_V[84] == fit.effects.level_V[0] == mean


def test_parents_deviate_from_the_mean_of_the_levels():
    # all levels .6 above l: the mean, not the parents, which would have to be unseen ones' levels too
    cells, parent_V, _ = draw_cells(10, n_parents=40, n=400)
    fit = fit_hierarchical_effects(cells, cells.logit - 0.6, parent_V)
    at_l = fit_hierarchical_effects(cells, cells.logit, parent_V)
    assert fit.effects.mean_level - at_l.effects.mean_level == pytest.approx(0.6, abs=0.01)
    assert fit.effects.level_V[0] == fit.effects.mean_level
    np.testing.assert_allclose([fit.tau_parent, fit.tau_value], [at_l.tau_parent, at_l.tau_value], rtol=0.02)
    np.testing.assert_allclose(fit.parent_level_P, at_l.parent_level_P, atol=0.02)
    np.testing.assert_allclose(fit.effects.level_V - 0.6, at_l.effects.level_V, atol=0.02)


def test_strong_effects_stay_finite_and_right():
    cells, parent_V, level_V = draw_cells(4, sd_parent=2.0, sd_value=1.0, n=4000, rate_logit=0.0)
    fit = fit_hierarchical_effects(cells, cells.logit + 2, parent_V)
    assert 1.3 < fit.tau_parent < 3
    assert fit.tau_value == pytest.approx(1.0, abs=0.15)
    assert np.mean((fit.effects.level_V - level_V) ** 2) < 0.02


def test_slopes_on_the_parents_scale_are_written_on_the_plain_one():
    # values with a slope of their own: at the result, each value's likelihood in (level, slope) of `apply` has the
    # gradient that the two priors ask for, so that the rewritten effects are the fitted ones
    rng = np.random.default_rng(5)
    parent_V = np.append(0, 1 + np.arange(40) % 4)
    z = np.repeat(np.arange(1, 41), 30)
    logit = np.tile(np.linspace(-4, 1, 30), 40)
    slope = np.append(0, rng.normal(0, 0.4, 40))
    parent = np.array([0, 0.8, 0.3, -0.4, -0.8])
    truth = logit + parent[parent_V[z]] + slope[z] * (logit + 1.5)
    n = np.full(len(z), 4000)
    y = rng.binomial(n, 1 / (1 + np.exp(-truth)))
    cells = cells_by_hand(list(zip(z, np.floor(32 * logit).astype(int), n, y, strict=True)), 41)
    order = np.lexsort((np.floor(32 * logit), z))
    curve_logit = logit[order]
    effects = fit_hierarchical_effects(cells, curve_logit, parent_V).effects
    np.testing.assert_allclose(effects.apply(cells.field_value_id, curve_logit), truth[order], atol=0.25)
    plain = fit_value_effects(cells, curve_logit)
    assert (effects.mean, effects.scale) == (plain.mean, plain.scale)
    np.testing.assert_allclose(effects.slope_V, plain.slope_V, atol=0.03)


def test_without_parents_tau_is_that_of_the_plain_fit_with_slopes():
    # level and slope of a value are confounded (most samples far from the mean of l): a τ from information on the
    # level that takes the slope for known is 8 % too small here
    rng = np.random.default_rng(9)
    z, cell, n = np.repeat(np.arange(1, 401), 2), np.tile([-128, 32], 400), np.tile([400, 40], 400)
    level, slope = np.append(0, rng.normal(0, 0.5, 400)), np.append(0, rng.normal(0, 0.8, 400))
    eta = (cell + 0.5) / 32 + level[z] + slope[z] * ((cell + 0.5) / 32 + 3.5) / 1.4
    y = rng.binomial(n, 1 / (1 + np.exp(-eta)))
    cells = cells_by_hand(list(zip(z, cell, n, y, strict=True)), 401)
    fit = fit_hierarchical_effects(cells, cells.logit, np.zeros(401, np.int64))
    plain = fit_value_effects(cells, cells.logit)
    assert fit.tau_value == pytest.approx(plain.tau_level, rel=0.02)
    np.testing.assert_allclose(fit.effects.level_V, plain.level_V, atol=0.02)


def test_weight_two_is_two_rows_and_id_0_takes_no_part():
    rng = np.random.default_rng(6)
    z, s = rng.integers(1, 13, 3000), rng.normal(-1, 1, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(-s - 0.4 * (z % 3 - 1)))).astype(int)
    parent_V = np.append(0, 1 + np.arange(1, 13) % 3)
    repeated = cells_of_rows(np.tile(z, 2), np.tile(s, 2), np.tile(y, 2), 13)
    weighted = cells_of_rows(z, s, y, 13, weight=np.full(3000, 2.0))
    fit = fit_hierarchical_effects(repeated, repeated.logit, parent_V, slope=False)
    twice = fit_hierarchical_effects(weighted, weighted.logit, parent_V, slope=False)
    np.testing.assert_allclose(twice.effects.level_V, fit.effects.level_V, atol=1e-8)
    with_unseen = cells_of_rows(
        np.append(np.tile(z, 2), [0, 0]), np.append(np.tile(s, 2), [0, 1]), np.append(np.tile(y, 2), [1, 1]), 13
    )
    unseen = fit_hierarchical_effects(with_unseen, with_unseen.logit, parent_V, slope=False)
    np.testing.assert_allclose(unseen.effects.level_V, fit.effects.level_V, atol=1e-8)


def test_level_off_leaves_parents_out():
    cells, parent_V, _ = draw_cells(7, 3, 4)
    fit = fit_hierarchical_effects(cells, cells.logit, parent_V, level=False)
    assert np.all(fit.parent_level_P == 0)
    assert (fit.tau_parent, fit.tau_value) == (0.0, 0.0)
    np.testing.assert_array_equal(fit.effects.slope_V, fit_value_effects(cells, cells.logit, level=False).slope_V)


def test_no_value_has_a_parent():
    cells, parent_V, _ = draw_cells(8, 5, 10)
    fit = fit_hierarchical_effects(cells, cells.logit, np.zeros_like(parent_V))
    plain = fit_value_effects(cells, cells.logit)
    np.testing.assert_allclose(fit.effects.level_V, plain.level_V, atol=0.02)
    assert fit.parent_level_P.tolist() == [0]
    assert fit.tau_parent == TAU_LIMITS[0]


def test_faults():
    cells = cells_by_hand([(1, 0, 50, 1), (2, 0, 50, 9)], 3)
    with pytest.raises(ParentError, match=r"2 parents \(int64\) for 3 field value ids"):
        fit_hierarchical_effects(cells, cells.logit, np.array([0, 1]))
    with pytest.raises(ParentError, match=r"3 parents \(float64\).*whole numbers"):
        fit_hierarchical_effects(cells, cells.logit, np.array([0, 1, 1.0]))
    with pytest.raises(ParentError, match=r"parent ids from -1.*start at 0"):
        fit_hierarchical_effects(cells, cells.logit, np.array([0, -1, 1]))
    with pytest.raises(ParentError, match=r"field value id 0 \(unseen\) has parent 1"):
        fit_hierarchical_effects(cells, cells.logit, np.array([1, 1, 1]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_hierarchical_effects(cells.select(cells.cell > 5), np.zeros(0), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="not finite"):
        fit_hierarchical_effects(cells, np.array([0, np.inf]), np.array([0, 1, 1]))
