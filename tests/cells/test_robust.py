from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.baselines.isotonic import fit_isotonic
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.cells.bin_bounds import NoCellsError, compute_bin_bounds
from adacalib.cells.functions import interpolate
from adacalib.cells.robust import choose_without_harm, compute_log_loss, fit_robust
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells

GLOBAL_CURVE = {"value_level": False, "value_slope": False, "bin_shrinkage": False}


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
    (level, slope), _, mean, scale = oracle.value_effects(by_value)
    used = [bounds.bin_bounds_VJ[i, : bounds.n_bins_V[i] + 1].tolist() for i in range(7)]

    def eta(i, x):
        return curve(x) + level[i] + slope[i] * (curve(x) - mean) / scale

    cell_eta = np.array([eta(i, x) for i, x in zip(cells.field_value_id, cells.logit, strict=True)])
    shifts, weights, _ = oracle.bin_shifts(
        list_by_value(cells, cells.logit, cell_eta, cells.weight, cells.response), used
    )
    for i in range(7):
        expected = oracle.knots(used[i], [float(eta(i, np.float64(b))) for b in used[i]], shifts[i], weights[i])
        np.testing.assert_allclose(fit.functions.knots_VJ[i, : len(expected)], expected, atol=1e-2)


def test_all_switches_off_is_the_global_curve_at_the_bounds():
    (z, s, y, _), _ = draw_rows(20_000, 10, seed=4)
    cells = cells_of_rows(z, s, y, 11)
    bounds = compute_bin_bounds(cells, 10)
    fit = fit_robust(cells, bounds, **GLOBAL_CURVE)
    inside = np.isfinite(bounds.bin_bounds_VJ)
    # never more than the least slope asks for: flat stretches of the curve rise by .02 per unit
    moved = fit.functions.knots_VJ[inside] - fit.curve.evaluate(bounds.bin_bounds_VJ[inside])
    assert np.abs(moved).max() < 0.05
    assert fit.diagnostics["bin_strength"] is None
    assert (fit.effects.tau_level, fit.effects.tau_slope) == (0.0, 0.0)


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
