from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adacalib.baselines.isotonic import fit_isotonic
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.cells.bin_bounds import NoCellsError, compute_bin_bounds
from adacalib.cells.functions import interpolate
from adacalib.cells.global_curve import fit_global_curve
from adacalib.cells.hierarchy import ParentError, fit_hierarchical_effects
from adacalib.cells.knots import compute_bin_shifts, make_monotone, spread_to_bounds
from adacalib.cells.robust import choose_without_harm, compute_log_loss, fit_robust
from adacalib.cells.value_effects import compute_shapes, fit_value_effects
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells

GLOBAL_CURVE = {"value_level": False, "value_slope": False, "value_shape": False, "bin_shrinkage": False}


def log_loss(y, p):
    return -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("effect", [1.0, 0.0])
def test_robust_earns_its_keep_on_fresh_rows(effect):
    train, (z, s, y, truth) = draw_rows(200_000, 100, seed=13, effect=effect)
    cells = cells_of_rows(*train[:3], 101)
    fit = fit_robust(cells, compute_bin_bounds(cells, 20))
    loss = {
        "truth": log_loss(y, truth),
        "robust": log_loss(y, sigmoid(interpolate(fit.functions, z, s))),
        "isotonic_offset": log_loss(y, fit_isotonic_offset(cells).predict(s, z)),
        "isotonic": log_loss(y, fit_isotonic(cells).predict(s, z)),
    }
    choice = choose_without_harm(cells, 20, seed=1)
    if effect:
        assert loss["truth"] < loss["robust"] < loss["isotonic_offset"] - 1e-3 < loss["isotonic"] - 2e-3
        assert loss["robust"] - loss["truth"] < 0.4 * (loss["isotonic_offset"] - loss["truth"])
        assert choice.chosen == "robust"
        assert 0.4 < fit.effects.tau_level < 0.8
    else:
        assert fit.effects.tau_level < 0.05
        assert fit.diagnostics["bin_strength"] > 1000
        assert max(loss.values()) - min(loss.values()) < 4e-4
        assert choice.loss_robust == pytest.approx(choice.loss_global_curve, abs=1e-4)


def test_fit_is_the_oracles_composition():
    (z, s, y, _), _ = draw_rows(6000, 6, seed=17)
    cells = cells_of_rows(z, s, y, 7)
    bounds = compute_bin_bounds(cells, 5)
    fit = fit_robust(cells, bounds)

    rows = zip(cells.cell.tolist(), cells.weight, cells.response, cells.logit, strict=True)
    knots_x, knots_y = oracle.global_curve(list(rows))
    ends = fit.curve.slope_lower, fit.curve.slope_upper

    def curve(x):
        inside = np.interp(x, knots_x, knots_y)
        return inside + ends[0] * np.minimum(x - knots_x[0], 0) + ends[1] * np.maximum(x - knots_x[-1], 0)

    by_value = list_by_value(cells, curve(cells.logit), cells.weight, cells.response)
    effects, taus, mean, scale, _ = oracle.value_effects(by_value, shape=True)
    assert max(taus[2:]) > 0.1
    used = [bounds.bin_bounds_VJ[i, : bounds.n_bins_V[i] + 1].tolist() for i in range(7)]

    def eta(i, x):
        u = (curve(x) - mean) / scale
        return curve(x) + effects[0, i] + effects[1, i] * u + effects[2:, i] @ oracle.bends(u)

    cell_eta = np.array([eta(i, x) for i, x in zip(cells.field_value_id, cells.logit, strict=True)])
    shifts, weights, _ = oracle.bin_shifts(
        list_by_value(cells, cells.logit, cell_eta, cells.weight, cells.response), used
    )
    for i in range(7):
        expected = oracle.knots(used[i], [float(eta(i, np.float64(b))) for b in used[i]], shifts[i], weights[i])
        np.testing.assert_allclose(fit.functions.knots_RJ[i, : len(expected)], expected, atol=1e-2)


def test_the_function_of_unseen_values_stands_at_the_mean_of_the_levels():
    # one frequent value carries the curve; 400 rare ones lie .8 above it, and so will those that are yet to come
    rng = np.random.default_rng(8)
    rows = [(1, cell, 20_000, round(20_000 * sigmoid(cell / 32))) for cell in range(-64, 0, 4)]
    rows += [(z, -32, 25, rng.binomial(25, sigmoid(-0.2))) for z in range(2, 402)]
    cells = cells_by_hand(rows, 403)  # id 402 has no cells
    fit = fit_robust(cells, compute_bin_bounds(cells, 5), value_slope=False, value_shape=False)
    line = np.linspace(-1.9, -0.2, 20)
    unseen, empty = (interpolate(fit.functions, np.full(20, z), line) for z in (0, 402))
    np.testing.assert_array_equal(unseen, empty)
    # the curve bends upwards where the rare values are; between its bounds a function is straight
    np.testing.assert_allclose(unseen - fit.curve.evaluate(line), fit.effects.mean_level, atol=0.1)
    assert fit.effects.mean_level == pytest.approx(0.8, abs=0.2)


def test_all_switches_off_is_the_global_curve_at_the_bounds():
    (z, s, y, _), _ = draw_rows(20_000, 10, seed=4)
    cells = cells_of_rows(z, s, y, 11)
    bounds = compute_bin_bounds(cells, 10)
    fit = fit_robust(cells, bounds, **GLOBAL_CURVE)
    inside = np.isfinite(bounds.bin_bounds_VJ)
    # never more than the least slope asks for: flat stretches of the curve rise by .02 per unit
    moved = fit.functions.knots_RJ[inside] - fit.curve.evaluate(bounds.bin_bounds_VJ[inside])
    assert np.abs(moved).max() < 0.05
    assert fit.diagnostics["bin_strength"] is None
    assert (fit.effects.tau_level, fit.effects.tau_slope, fit.effects.tau_shape) == (0.0, 0.0, ())
    assert fit.diagnostics["tau_shape"] is None


@settings(max_examples=40, deadline=None)
@given(some_cells(), st.integers(1, 8), st.booleans(), st.booleans(), st.booleans())
def test_functions_are_finite_and_strictly_monotone(cells, n_bins, level, slope, shrinkage):
    fit = fit_robust(
        cells, compute_bin_bounds(cells, n_bins), value_level=level, value_slope=slope, bin_shrinkage=shrinkage
    )
    line = np.linspace(-20, 20, 300)
    for i in range(cells.n_values):
        calibrated = interpolate(fit.functions, np.full(len(line), i), line)
        assert np.all(np.isfinite(calibrated))
        assert np.all(np.diff(calibrated) > 0)
    numbers = [value for value in fit.diagnostics.values() if value is not None]
    assert np.all(np.isfinite(numbers))


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 0.3, 1)],  # 1 sample
        [(1, 0.3, 0)] * 5,  # all scores equal, no response
        [(1, x, 1) for x in (-9, 0, 9)],  # one value, only responses
        [(1, x / 7, x % 2) for x in range(50)] + [(2, x / 7, 0) for x in range(50)] + [(3, 16.1, 1)],
    ],
)
def test_edge_cases_stay_sane(rows):
    z, s, y = zip(*rows, strict=True)
    cells = cells_of_rows(z, s, y, 5, weight=np.linspace(0.3, 1.7, len(rows)))
    fit = fit_robust(cells, compute_bin_bounds(cells, 20))
    calibrated = interpolate(fit.functions, np.repeat(np.arange(5), 3), np.tile([-16.0, 0.0, 16.0], 5))
    assert np.all(np.isfinite(calibrated))
    choice = choose_without_harm(cells, 20, seed=0)
    assert choice.chosen in ("global_curve", "robust")


def test_unseen_values_get_no_effect():
    (z, s, y, _), _ = draw_rows(20_000, 10, seed=4)
    cells = cells_of_rows(z, s, y, 13)  # ids 11 and 12 have no rows
    fit = fit_robust(cells, compute_bin_bounds(cells, 10))
    line = np.linspace(-6, 2, 50)
    unseen, no_rows = (interpolate(fit.functions, np.full(50, i), line) for i in (0, 12))
    np.testing.assert_array_equal(unseen, no_rows)


def test_nothing_to_hold_out_keeps_the_global_curve():
    choice = choose_without_harm(cells_by_hand([(1, 0, 1, 1)], 2), 5, seed=0)
    assert (choice.chosen, choice.loss_global_curve, choice.loss_robust) == ("global_curve", None, None)


def test_later_days_are_the_held_out_rows():
    # on the later days value 1 and 2 have changed places: what robust mode learned does harm
    early = cells_by_hand([(1, 0, 1000, 900), (2, 0, 1000, 100)], 3)
    swapped = cells_by_hand([(1, 0, 1000, 100), (2, 0, 1000, 900)], 3)
    assert choose_without_harm(early, 5, seed=0, later=early).chosen == "robust"
    harm = choose_without_harm(early, 5, seed=0, later=swapped)
    assert harm.chosen == "global_curve"
    assert harm.loss_global_curve == pytest.approx(np.log(2), abs=1e-3)
    # 90 % of the held-out rows are taken for about 10 %: close to -.9 log .1 - .1 log .9
    assert harm.loss_robust == pytest.approx(2.083, abs=0.05)


def test_log_loss_by_hand():
    # p = 1/2 for 3 samples, p = 3/4 for 1 response: (3 log 2 + log 4/3)/4
    cells = cells_by_hand([(1, 0, 3, 1), (1, 1, 1, 1)], 2)
    assert compute_log_loss(cells, np.array([0, np.log(3)])) == pytest.approx((3 * np.log(2) + np.log(4 / 3)) / 4)


def test_no_cells():
    cells = cells_by_hand([(1, 0, 1, 0)], 2)
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_robust(cells.select(np.array([False])), compute_bin_bounds(cells, 5))


def test_a_value_without_samples_gets_its_parents_level():
    # one cell, 4 values of 2 parents: .7 of parent 1's samples respond, .3 of parent 2's; values 5 and 6 have none
    rows = [(1, 0, 4000, 2800), (2, 0, 4000, 2800), (3, 0, 4000, 1200), (4, 0, 4000, 1200)]
    cells = cells_by_hand(rows, 8)
    parent_V = np.array([0, 1, 1, 2, 2, 1, 2, 0])
    bounds = compute_bin_bounds(cells, 5)
    fit = fit_robust(cells, bounds, value_slope=False, bin_shrinkage=False, parent_V=parent_V)
    middle = 0.5 / 32
    found = interpolate(fit.functions, np.arange(8), np.full(8, middle))
    high, low = np.log(7 / 3), np.log(3 / 7)
    np.testing.assert_allclose(found[1:7], [high, high, low, low, high, low], atol=0.02)
    np.testing.assert_allclose(found[[0, 7]], 0, atol=0.02)  # neither seen nor kin: the curve of all
    # the parent's part of the level; nothing is left for the values themselves
    np.testing.assert_allclose(fit.parent_level_V, [0, high, high, low, low, high, low, 0], atol=0.02)
    np.testing.assert_allclose(fit.effects.level_V, fit.parent_level_V, atol=0.02)
    assert fit.diagnostics["tau_parent"] > 0.5 > fit.diagnostics["tau_level"]
    plain = fit_robust(cells, bounds, value_slope=False, bin_shrinkage=False)
    assert plain.diagnostics["tau_parent"] is None and not plain.parent_level_V.any()
    assert abs(interpolate(plain.functions, np.array([5]), np.array([middle]))[0]) < 0.02


def test_parents_change_the_effects_and_nothing_else():
    (z, s, y, _), _ = draw_rows(8000, 12, seed=21)
    cells = cells_of_rows(z, s, y, 13)
    parent_V = np.append(0, np.arange(12) % 3 + 1)
    bounds, curve = compute_bin_bounds(cells, 6), fit_global_curve(cells)
    curve_logit = curve.evaluate(cells.logit)
    effects = fit_hierarchical_effects(cells, curve_logit, parent_V, shape=True).effects
    fit = fit_robust(cells, bounds, parent_V=parent_V)
    np.testing.assert_allclose(fit.effects.level_V, effects.level_V, atol=1e-6)
    np.testing.assert_allclose(fit.effects.slope_V, effects.slope_V, atol=1e-6)
    np.testing.assert_allclose(fit.effects.shape_VK, effects.shape_VK, atol=1e-6)
    shifts = compute_bin_shifts(cells, bounds, effects.apply(cells.field_value_id, curve_logit))
    eta_VJ = effects.apply(np.arange(13)[:, None], curve.evaluate(bounds.filled_VJ))
    knots_VJ = make_monotone(eta_VJ + spread_to_bounds(shifts), bounds)
    inside = np.isfinite(bounds.bin_bounds_VJ)
    np.testing.assert_allclose(fit.functions.knots_RJ[inside], knots_VJ[inside], atol=1e-5)


def test_without_levels_parents_are_no_news():
    (z, s, y, _), _ = draw_rows(4000, 6, seed=2)
    cells = cells_of_rows(z, s, y, 7)
    bounds = compute_bin_bounds(cells, 5)
    known = fit_robust(cells, bounds, value_level=False, parent_V=np.append(0, np.ones(6, int)))
    plain = fit_robust(cells, bounds, value_level=False)
    np.testing.assert_array_equal(known.functions.knots_RJ, plain.functions.knots_RJ)
    assert known.diagnostics["tau_parent"] is None and not known.parent_level_V.any()


def falling_cells():
    """Value 1 falls: the higher its score the fewer responses; values 2 and 3 rise steeply."""
    rows = [(1, cell, 4000, 2800 - 60 * k) for k, cell in enumerate(range(-32, 32, 2))]
    rows += [(z, cell, 9000, 1500 + 200 * k) for z in (2, 3) for k, cell in enumerate(range(-32, 32, 2))]
    return cells_by_hand(rows, 4)


def test_a_function_falls_only_where_that_is_allowed():
    cells = falling_cells()
    bounds = compute_bin_bounds(cells, 4)
    free, hard = (fit_robust(cells, bounds, hard_monotone=monotone) for monotone in (False, True))
    line = np.linspace(-0.9, 0.9, 50)
    for z, falls in ((1, True), (2, False), (3, False)):
        loose, strict = (interpolate(fit.functions, np.full(50, z), line) for fit in (free, hard))
        assert bool(np.any(np.diff(loose) < 0)) == falls
        assert np.all(np.diff(strict) > 0)
        if not falls:
            np.testing.assert_array_equal(loose, strict)
    # 1 of 4 ids, unseen ones included
    assert free.diagnostics["pooled_share"] == hard.diagnostics["pooled_share"] == 0.25
    # from .7 to .235 of the responses: the free function follows them
    ends = interpolate(free.functions, np.array([1, 1]), np.array([-0.98, 0.98]))
    assert ends[0] > 0.5 and ends[1] < -0.7


@settings(max_examples=25, deadline=None)
@given(some_cells(), st.integers(1, 8))
def test_monotone_or_not_share_what_rises(cells, n_bins):
    bounds = compute_bin_bounds(cells, n_bins)
    free, hard = (fit_robust(cells, bounds, hard_monotone=monotone) for monotone in (False, True))
    assert np.all(np.isfinite(free.functions.knots_RJ))
    inside_VK = np.arange(free.functions.knots_RJ.shape[1] - 1) < bounds.n_bins_V[:, None]
    rises_VK = np.diff(free.functions.knots_RJ, axis=1)
    falls_V = np.any((rises_VK < -1e-9) & inside_VK, axis=1)
    assert free.diagnostics["pooled_share"] == np.mean(falls_V)
    # knots of the free function that rise by more than the least slope everywhere are the monotone ones
    width_VK = np.diff(bounds.filled_VJ, axis=1)
    is_steep_V = np.all((rises_VK > 0.0201 * width_VK) | ~inside_VK, axis=1)
    moved_VJ = np.abs(free.functions.knots_RJ - hard.functions.knots_RJ)
    assert np.all(moved_VJ[is_steep_V] < 1e-9)


def test_the_choice_fits_with_what_is_known():
    # 300 values of 3 parents, about 20 samples each: alone they say little, the parents' levels are ± 1.2
    rng = np.random.default_rng(5)
    parent_V = np.append(0, np.arange(300) % 3 + 1)
    z = rng.integers(1, 301, 6000)
    s = rng.normal(-1, 0.5, 6000)
    truth = 1 / (1 + np.exp(-(s + np.array([0, -1.2, 0.0, 1.2])[parent_V[z]])))
    cells = cells_of_rows(z, s, rng.random(6000) < truth, 301)
    alone = choose_without_harm(cells, 5, seed=3)
    together = choose_without_harm(cells, 5, seed=3, parent_V=parent_V)
    assert together.loss_global_curve == alone.loss_global_curve
    assert together.loss_robust < alone.loss_robust - 0.005
    assert together.chosen == "robust"


def test_parents_that_do_not_fit_are_refused():
    cells = cells_by_hand([(1, 0, 10, 5)], 3)
    with pytest.raises(ParentError, match=r"2 parents .* for 3 field value ids"):
        fit_robust(cells, compute_bin_bounds(cells, 5), parent_V=np.array([0, 1]))


def test_bends_by_hand():
    # He2 = u² - 1, He3 = u³ - 3u, He4 = u⁴ - 6u² + 3 at 0, 1, -1, 2, 2.5 and -2.5
    expected = [
        np.array([-1, 0, 0, 3, 5.25, 5.25]) / math.sqrt(2),
        np.array([0, -2, 2, 2, 8.125, -8.125]) / math.sqrt(6),
        np.array([3, -2, -2, -5, 4.5625, 4.5625]) / math.sqrt(24),
    ]
    np.testing.assert_allclose(compute_shapes(np.array([0, 1, -1, 2, 2.5, -2.5])), expected, atol=1e-12)
    # flat beyond 2.5, on either side
    np.testing.assert_allclose(compute_shapes(np.array([0, 1, -1, 2, 1e9, -2.6])), expected, atol=1e-12)
    np.testing.assert_allclose(compute_shapes(np.linspace(-4, 4, 99)), oracle.bends(np.linspace(-4, 4, 99)), atol=1e-12)


def test_bends_have_mean_0_and_variance_1_under_a_normal_u():
    # inside the reach they are polynomials: with level and slope, from 5 points and the moments 1, 0, 1, 0, 3, 0, 15,
    # 0, 105 of a normal u, all variances are 1 and all means and covariances 0
    u, moments = np.linspace(-2.4, 2.4, 5), np.array([1, 0, 1, 0, 3, 0, 15, 0, 105.0])
    columns = np.array([np.ones(5), u, *compute_shapes(u)])
    powers = np.linalg.solve(np.vander(u, increasing=True), columns.T)
    products = moments[np.add.outer(np.arange(5), np.arange(5))]
    np.testing.assert_allclose(powers.T @ products @ powers, np.eye(5), atol=1e-9)


def test_bends_by_hand_in_the_log_odds():
    # l = 0 with mean -1 and scale 1 is u = 1: level .5, slope .2, and the bends there are 0, -2/√6 and -2/√24
    effects = fit_value_effects(cells_by_hand([(1, 0, 9, 3)], 2), np.zeros(1), shape=True)
    effects = replace(
        effects,
        level_V=np.array([0.1, 0.5]),
        slope_V=np.array([0, 0.2]),
        shape_VK=np.array([[0, 0, 0], [7, 0.3, -0.4]]),
        mean=-1.0,
        scale=1.0,
    )
    bend = -0.6 / math.sqrt(6) + 0.8 / math.sqrt(24)
    np.testing.assert_allclose(effects.compute_shape(np.array([0, 1]), np.zeros(2)), [0, bend], atol=1e-12)
    np.testing.assert_allclose(effects.apply(np.array([0, 1]), np.zeros(2)), [0.1, 0.7 + bend], atol=1e-12)
    assert effects.apply(np.arange(2)[:, None], np.zeros((2, 4))).shape == (2, 4)


@settings(max_examples=15, deadline=None)
@given(some_cells(max_cells=25), st.tuples(*[st.floats(0.05, 2)] * 5))
def test_bends_of_fixed_tau_are_the_oracles(cells, tau):
    assume(np.ptp(cells.logit) > 0.5)  # a single point has no shape
    effects = fit_value_effects(cells, cells.logit, shape=True, tau=tau)
    by_value = list_by_value(cells, cells.logit, cells.weight, cells.response)
    expected, *_ = oracle.value_effects(by_value, tau=tau, shape=True)
    found = [effects.level_V, effects.slope_V, *effects.shape_VK.T]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=3e-3)
    assert (effects.tau_level, effects.tau_slope, *effects.tau_shape) == tau


@pytest.mark.parametrize("slope", [True, False])
def test_estimated_tau_of_bends_is_the_oracles(slope):
    (z, s, y, _), _ = draw_rows(4000, 8, seed=11)
    cells = cells_of_rows(z, s, y, 9)
    effects = fit_value_effects(cells, 0.8 * cells.logit - 0.3, slope=slope, shape=True)
    by_value = list_by_value(cells, 0.8 * cells.logit - 0.3, cells.weight, cells.response)
    expected, taus, *_ = oracle.value_effects(by_value, slope=slope, shape=True)
    found = [effects.level_V, effects.slope_V, *effects.shape_VK.T]
    np.testing.assert_allclose(found, expected, atol=5e-3)
    assert effects.tau_level == pytest.approx(taus[0], rel=0.02)
    np.testing.assert_allclose(effects.tau_shape, taus[2:], rtol=0.02, atol=2e-3)
    assert max(effects.tau_shape) > 0.1


def draw_bent(seed, spread, n=400, parent_P=None):
    """(cells, truth per cell, parent_V): 60 values whose bends alone differ, l the logit.

    u is about normal: 20 places within ±2, about n samples a place and value. Id 61 has no cells. Parents shift the
    levels.
    """
    rng = np.random.default_rng(seed)
    share = np.exp(-(np.linspace(-2, 2, 20) ** 2) / 2)
    counts = np.tile(np.round(20 * n * share / share.sum()).astype(int), 60)
    z, cell = np.repeat(np.arange(1, 61), 20), np.tile(np.arange(-88, -8, 4), 60)
    logit = (cell + 0.5) / 32
    mean = np.average(logit, weights=counts)
    u = (logit - mean) / np.sqrt(np.average((logit - mean) ** 2, weights=counts))
    weights_VK = spread * rng.normal(size=(61, 3))
    parent_V = np.append(np.append(0, np.arange(60) % 3 + 1), 1)
    truth = logit + np.sum(weights_VK[z] * oracle.bends(u).T, axis=1)
    truth = truth + (0 if parent_P is None else np.append(0, parent_P)[parent_V[z]])
    y = rng.binomial(counts, 1 / (1 + np.exp(-truth)))
    return cells_by_hand(list(zip(z, cell, counts, y, strict=True)), 62), truth, parent_V


def mean_square(cells, effects, truth):
    error = effects.apply(cells.field_value_id, cells.logit) - truth
    return np.average(error**2, weights=cells.weight)


def test_values_that_bend_only_are_recovered_with_bends():
    cells, truth, _ = draw_bent(0, spread=0.4)
    bent, straight = (fit_value_effects(cells, cells.logit, shape=shape) for shape in (True, False))
    np.testing.assert_allclose(bent.tau_shape, 0.4, atol=0.1)
    assert max(bent.tau_level, bent.tau_slope) < 0.05
    assert mean_square(cells, bent, truth) < 0.05 * mean_square(cells, straight, truth)
    # robust mode's shifts bend a function too, but where a bin holds few samples less sparingly
    cells, truth, _ = draw_bent(0, spread=0.4, n=40)
    bounds = compute_bin_bounds(cells, 10)
    fits = [fit_robust(cells, bounds, value_shape=shape, hard_monotone=False) for shape in (True, False)]
    errors = [
        np.average((interpolate(fit.functions, cells.field_value_id, cells.logit) - truth) ** 2, weights=cells.weight)
        for fit in fits
    ]
    assert errors[0] < 0.5 * errors[1]
    assert fits[0].diagnostics["tau_shape"] == pytest.approx(math.hypot(*fits[0].effects.tau_shape))
    assert fits[0].diagnostics["tau_shape"] > 0.5
    assert fits[1].diagnostics["tau_shape"] is None and fits[1].effects.shape_VK is None


@pytest.mark.parametrize("seed", [0, 1])
def test_without_bends_their_tau_is_small_and_the_result_is_nearly_straight(seed):
    cells, truth, _ = draw_bent(seed, spread=0.0)
    bent, straight = (fit_value_effects(cells, cells.logit, shape=shape) for shape in (True, False))
    assert max(bent.tau_shape) < 0.05
    found, plain = (fit.apply(cells.field_value_id, cells.logit) for fit in (bent, straight))
    np.testing.assert_allclose(found, plain, atol=0.06)
    assert mean_square(cells, bent, truth) < 3e-4


def test_id_0_and_ids_without_cells_have_no_bends():
    cells, _, _ = draw_bent(3, spread=0.4)
    effects = fit_value_effects(cells, cells.logit, shape=True)
    assert effects.shape_VK.shape == (62, 3)
    assert not effects.shape_VK[[0, 61]].any() and effects.shape_VK[1:61].all()
    line = np.linspace(-4, 1, 30)
    for z in (0, 61):
        np.testing.assert_allclose(effects.apply(np.full(30, z), line), line + effects.mean_level, atol=1e-12)


def test_parents_keep_the_bends_of_the_plain_effects():
    cells, truth, parent_V = draw_bent(4, spread=0.4, parent_P=[-0.8, 0.0, 0.8])
    plain = fit_value_effects(cells, cells.logit, slope=False, shape=True)
    found = fit_hierarchical_effects(cells, cells.logit, parent_V, slope=False, shape=True)
    np.testing.assert_array_equal(found.effects.shape_VK, plain.shape_VK)
    assert found.effects.tau_shape == plain.tau_shape
    without = fit_hierarchical_effects(cells, cells.logit, parent_V, slope=False)
    assert mean_square(cells, found.effects, truth) < 0.1 * mean_square(cells, without.effects, truth)
    # with the bends in, each value's level is where the residuals pull as hard as its prior about its parent
    residual = cells.response - cells.weight * sigmoid(found.effects.apply(cells.field_value_id, cells.logit))
    own_V = found.effects.level_V - found.effects.mean_level - found.parent_level_P[parent_V]
    np.testing.assert_allclose(cells.sum_by_value(residual)[1:61], own_V[1:61] / found.tau_value**2, atol=1e-3)
    # and each parent's level is where its values pull as hard as its own prior
    pull_P = np.bincount(parent_V[1:61], own_V[1:61] / found.tau_value**2)
    np.testing.assert_allclose(found.parent_level_P, pull_P * found.tau_parent**2, atol=0.02)
    # no parent effect is left over for the bends to hide
    assert found.parent_level_P[3] - found.parent_level_P[1] == pytest.approx(1.6, abs=0.15)
    # the value without cells has its parent's level, and no bend
    level = found.effects.mean_level + found.parent_level_P[1]
    assert found.effects.apply(np.array([61]), np.array([-2.0]))[0] == pytest.approx(level - 2.0)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("tau", [None, (0.01,) * 5, (3.0,) * 5])
def test_bends_of_one_class_stay_finite(label, tau):
    cells = cells_by_hand([(z, 16 * (z % 5), 1 + z % 3 * 500, label * (1 + z % 3 * 500)) for z in range(1, 40)], 41)
    for offset in (-6.0, 0.0, 6.0):
        effects = fit_value_effects(cells, cells.logit + offset, shape=True, tau=tau)
        assert np.all(np.isfinite(effects.shape_VK)) and np.all(np.isfinite(effects.tau_shape))
        assert np.all(np.isfinite(effects.apply(np.arange(41)[:, None], np.linspace(-40, 40, 81)[None])))


def test_bends_know_a_faulty_tau():
    cells, _, _ = draw_bent(6, spread=0.0, n=20)
    with pytest.raises(ValueError, match=r"tau is \(1.0, 1.0, 1.0, 0.0, 1.0\).*must be positive"):
        fit_value_effects(cells, cells.logit, shape=True, tau=(1.0, 1.0, 1.0, 0.0, 1.0))


def test_bends_go_without_levels_and_the_choice_weighs_them():
    cells, _, _ = draw_bent(7, spread=0.4)
    bounds = compute_bin_bounds(cells, 10)
    fit = fit_robust(cells, bounds, value_level=False)
    expected = fit_value_effects(cells, fit.curve.evaluate(cells.logit), level=False, shape=True)
    assert not fit.effects.level_V.any()
    np.testing.assert_allclose(fit.effects.shape_VK, expected.shape_VK, atol=1e-6)
    assert np.abs(expected.shape_VK).max() > 0.5
    later = cells  # which rows are held out plays no part here
    parts = {"value_level": False, "value_slope": False, "bin_shrinkage": False}
    choice = choose_without_harm(cells, 10, seed=1, later=later, **parts)
    # on the one side the curve of all values alone, on the other the bends alone
    losses = [
        compute_log_loss(
            later, interpolate(fit_robust(cells, bounds, **own).functions, later.field_value_id, later.logit)
        )
        for own in (GLOBAL_CURVE, parts)
    ]
    np.testing.assert_allclose([choice.loss_global_curve, choice.loss_robust], losses, rtol=1e-9)
    assert choice.chosen == "robust" and losses[1] < losses[0] - 0.005
