from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.field_part import (
    RobustSwitches,
    fit_field_part,
)
from adacalib.cells.forward_slope import MIN_SLOPE, fit_forward_slope
from adacalib.cells.functions import FUNCTION_ARRAYS, BinFunctions, interpolate
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.cells.robust import fit_robust
from adacalib.cells.time_periods import split_by_time
from tests.cells.small_world import draw_rows

N_VALUES = 9
PLAIN = RobustSwitches(do_no_harm=False)


def make_columns(n_rows=4000, seed=3, effect=1.0, n_days=0):
    """One table row per sample."""
    (z, s, y, _), _ = draw_rows(n_rows, N_VALUES - 1, seed, effect)
    rng = np.random.default_rng(seed)
    weight = rng.choice([0.5, 1.0, 2.0], n_rows)
    columns = {
        "field_value_id": z,
        "cell": np.floor(32 * s).astype(np.int64),
        "n_samples": np.ones(n_rows, np.int64),
        "n_responses": y,
        "sum_weight": weight,
        "sum_weight_responses": weight * y,
        "sum_weight_logit": weight * s,
    }
    return columns | ({"date": rng.integers(0, n_days, n_rows)} if n_days else {})


def fit(columns, switches=PLAIN, seed=1):
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 5)
    return fit_field_part(columns, N_VALUES, bounds, switches, seed)


def assert_equal_functions(actual: BinFunctions, expected: BinFunctions) -> None:
    for name in FUNCTION_ARRAYS:
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))


def test_the_fit_is_fit_robust_on_all_cells():
    columns = make_columns()
    found = fit(columns)
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 5)
    whole = fit_robust(cells_from_columns(columns, N_VALUES), bounds)
    assert_equal_functions(found.functions, whole.functions)
    np.testing.assert_array_equal(found.level_V, whole.effects.level_V)
    assert found.level_V[0] == whole.effects.mean_level != 0  # what the function of an unseen value holds


def test_mean_logit_by_hand():
    # weights 3 of 4 respond: log 3; of one class, half a response of 4 short of it: 3.5·... = log((4 + .5)/.5) = log 9
    columns = {
        "field_value_id": np.array([1, 1, 2, 2]),
        "cell": np.array([0, 1, 2, 3]),
        "n_samples": np.ones(4, np.int64),
        "n_responses": np.array([1, 1, 1, 0]),
        "sum_weight": np.ones(4),
        "sum_weight_responses": np.array([1.0, 1.0, 1.0, 0.0]),
        "sum_weight_logit": np.array([0.0, 1.0, 2.0, 3.0]) / 32,
    }
    assert fit(columns).mean_logit == pytest.approx(np.log(3))
    ones = columns | {"n_responses": np.ones(4, np.int64), "sum_weight_responses": np.ones(4)}
    assert fit(ones).mean_logit == pytest.approx(np.log(9))


@pytest.mark.parametrize(("effect", "expected"), [(1.0, "robust"), (0.0, "global_curve")])
def test_step_8_chooses_by_held_out_loss(effect, expected):
    # without an effect the two differ by less than 1e-4, either way; seed 7 draws rows that speak for the curve
    found = fit(make_columns(20_000, seed=7, effect=effect), RobustSwitches())
    assert found.chosen == expected
    told = found.diagnostics
    better = "held_out_loss_robust" if expected == "robust" else "held_out_loss_global_curve"
    assert told[better] == min(told["held_out_loss_robust"], told["held_out_loss_global_curve"])
    assert told["do_no_harm"] is True
    if expected == "global_curve":
        assert not found.level_V.any()
        line = np.linspace(-4, 0, 30)
        # all values have one curve, up to the places of their bounds
        curves = [interpolate(found.functions, np.full(30, i), line) for i in range(1, N_VALUES)]
        assert np.ptp(curves, axis=0).max() < 0.3
    else:
        assert np.abs(found.level_V).max() > 0.3


def test_the_choice_can_be_switched_off():
    found = fit(make_columns(2000, effect=0.0))
    assert found.chosen == "robust"
    assert found.diagnostics["held_out_loss_robust"] is None
    assert found.diagnostics["do_no_harm"] is False


def test_step_8_looks_at_later_days_where_there_are_dates():
    # effects of the early days are turned round on the last of 10 days: robust mode does harm there
    columns = make_columns(20_000, seed=6, n_days=10)
    late = columns["date"] >= 7
    for name, total in (("n_responses", "n_samples"), ("sum_weight_responses", "sum_weight")):
        columns[name] = np.where(late, columns[total] - columns[name], columns[name])
    assert fit(columns, RobustSwitches()).chosen == "global_curve"
    undated = {name: values for name, values in columns.items() if name != "date"}
    assert fit(undated, RobustSwitches()).chosen == "robust"


def split_days(columns):
    parts = split_by_time(columns, 0.7)
    assert parts is not None
    return (cells_from_columns(part, N_VALUES) for part in parts)


def make_drifting_columns(seed=6, n_rows=20_000):
    """Of 10 days; on the last three every fourth label is dealt anew from the mean: effects and scores say less."""
    columns, rng = make_columns(n_rows, seed=seed, n_days=10), np.random.default_rng(seed)
    anew = (columns["date"] >= 7) & (rng.random(n_rows) < 0.25)
    label = np.where(anew, rng.random(n_rows) < columns["n_responses"].mean(), columns["n_responses"]).astype(np.int64)
    return columns | {"n_responses": label, "sum_weight_responses": columns["sum_weight"] * label}


def test_the_forward_slope_is_that_of_a_fit_to_the_earlier_days_on_the_later_ones():
    columns = make_drifting_columns()
    found = fit(columns)
    early, late = split_days(columns)
    functions = fit_robust(early, compute_bin_bounds(early, 5)).functions
    expected = fit_forward_slope(late, interpolate(functions, late.field_value_id, late.logit))
    assert found.forward_slope == expected.slope < 0.9
    assert found.diagnostics["forward_slope"] == expected.slope
    assert found.diagnostics["forward_slope_measured"] == expected.measured
    assert found.diagnostics["forward_slope_error"] == expected.standard_error
    # it is applied in the end: nothing else of the fit knows it
    assert_equal_functions(found.functions, fit(columns, replace(PLAIN, forward_slope=False)).functions)


def test_a_forward_slope_needs_days_and_its_switch():
    columns = make_drifting_columns()
    undated = {name: values for name, values in columns.items() if name != "date"}
    one_day = columns | {"date": np.zeros(len(columns["date"]), np.int64)}
    for given, switches in (
        (undated, PLAIN),
        (undated, RobustSwitches()),
        (one_day, PLAIN),
        (columns, RobustSwitches(forward_slope=False)),
    ):
        found = fit(given, switches)
        assert found.forward_slope == 1.0
        assert found.diagnostics["forward_slope_measured"] is None
    # the choice of step 8 is one thing, the slope another
    assert fit(columns, PLAIN).chosen == "robust"
    assert fit(columns, PLAIN).diagnostics["do_no_harm"] is False
    assert fit(columns, RobustSwitches()).forward_slope == fit(columns, PLAIN).forward_slope < 0.9


def test_where_the_global_curve_is_chosen_the_slope_is_its_own():
    # effects of the early days are turned round on the last of 10 days, the curve is turned round with them
    columns = make_columns(20_000, seed=6, n_days=10)
    columns = turn_labels(columns, columns["date"] >= 7)
    found = fit(columns, RobustSwitches())
    assert found.chosen == "global_curve"
    early, late = split_days(columns)
    off = {"value_level": False, "value_slope": False, "value_shape": False, "bin_shrinkage": False}
    functions = fit_robust(early, compute_bin_bounds(early, 5), **off).functions
    expected = fit_forward_slope(late, interpolate(functions, late.field_value_id, late.logit))
    assert found.forward_slope == expected.slope
    assert found.forward_slope == MIN_SLOPE


def turn_labels(columns, turned):
    """The columns with the labels of the rows given turned round."""
    return columns | {
        name: np.where(turned, columns[total] - columns[name], columns[name])
        for name, total in (("n_responses", "n_samples"), ("sum_weight_responses", "sum_weight"))
    }


def fit_with_parents(columns, parent_V, switches=PLAIN):
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 5)
    return fit_field_part(columns, N_VALUES, bounds, switches, 1, parent_V)


def test_parents_reach_the_fit_and_leave_the_re_level_its_part():
    columns, parent_V = make_columns(6000), np.array([0, 1, 1, 1, 1, 2, 2, 2, 0])
    # in the second family every other row without response gets one: the two differ by far
    raised = (parent_V[columns["field_value_id"]] == 2) & (columns["n_responses"] == 0) & (np.arange(6000) % 2 == 0)
    columns = turn_labels(columns, raised)
    found = fit_with_parents(columns, parent_V)
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 5)
    whole = fit_robust(cells_from_columns(columns, N_VALUES), bounds, parent_V=parent_V)
    assert_equal_functions(found.functions, whole.functions)
    assert whole.parent_level_V[5] > whole.parent_level_V[1] + 1
    # the re-level moves what is the values' own; the parents' part stays
    np.testing.assert_allclose(found.level_V, whole.effects.level_V - whole.parent_level_V)
    assert np.abs(found.level_V).max() < np.abs(whole.effects.level_V).max()
    assert found.diagnostics["tau_parent"] == whole.diagnostics["tau_parent"] > 0.3


def test_parents_play_no_part_where_step_8_says_the_global_curve():
    found = fit_with_parents(
        make_columns(20_000, seed=7, effect=0.0), np.array([0, 1, 1, 1, 1, 2, 2, 2, 2]), RobustSwitches()
    )
    assert found.chosen == "global_curve"
    assert found.diagnostics["tau_parent"] is None and not found.level_V.any()


@pytest.mark.parametrize("n_days", [0, 10])
def test_step_8_weighs_the_fit_with_parents(n_days):
    columns = make_columns(2000, seed=2, n_days=n_days)
    parent_V = np.array([0, 1, 1, 1, 1, 2, 2, 2, 2])
    columns = turn_labels(columns, parent_V[columns["field_value_id"]] == 2)
    losses = [
        fit_with_parents(columns, parents, RobustSwitches()).diagnostics["held_out_loss_robust"]
        for parents in (None, parent_V)
    ]
    assert losses[0] != losses[1]


def test_hard_monotone_off_reaches_the_functions():
    # responses fall with the score
    columns = make_columns(6000)
    columns = turn_labels(columns, np.ones(6000, bool))
    free = fit(columns, RobustSwitches(do_no_harm=False, hard_monotone=False))
    assert np.any(np.diff(free.functions.knots_RJ, axis=1) < -0.01)
    hard = fit(columns).functions
    inside = np.arange(hard.knots_RJ.shape[1] - 1) < hard.n_bins_R[:, None]
    assert np.all(np.diff(hard.knots_RJ, axis=1)[inside] > 0)
    assert free.diagnostics["pooled_share"] > 0.5


def test_nothing_to_choose_where_only_the_order_of_knots_is_switched():
    # hard_monotone is no part of a field effect: with the others off there is nothing to do harm
    off = RobustSwitches(
        value_level=False, value_slope=False, value_shape=False, bin_shrinkage=False, hard_monotone=False
    )
    found = fit(make_columns(1000), off)
    assert found.diagnostics["do_no_harm"] is False and found.chosen == "robust"


def test_the_switch_of_the_bends_reaches_the_fit():
    columns = make_columns(8000, n_days=12)
    columns = turn_labels(columns, (columns["date"] < 6) & (columns["field_value_id"] == 1))
    bent, straight = (fit(columns, RobustSwitches(do_no_harm=False, value_shape=shape)) for shape in (True, False))
    assert bent.diagnostics["tau_shape"] > 0.1
    assert straight.diagnostics["tau_shape"] is None
    cells = cells_from_columns(columns, N_VALUES)
    expected = fit_robust(cells, compute_bin_bounds(cells, 5), value_shape=False).functions
    np.testing.assert_allclose(straight.functions.knots_RJ, expected.knots_RJ, atol=1e-6)
    assert np.abs(bent.functions.knots_RJ - straight.functions.knots_RJ).max() > 0.01
    # and the choice of step 8 weighs what is then fitted
    losses = [
        fit(columns, RobustSwitches(value_shape=shape)).diagnostics["held_out_loss_robust"] for shape in (True, False)
    ]
    assert losses[0] != losses[1]


def test_bends_alone_are_chosen_or_left():
    # with the bends as the only part there is something that may do harm
    alone = {"value_level": False, "value_slope": False, "bin_shrinkage": False}
    found = fit(make_columns(1000), RobustSwitches(**alone))
    assert found.diagnostics["do_no_harm"] is True and found.diagnostics["held_out_loss_robust"] is not None
    # the global curve has none
    curve = fit(make_columns(20_000, seed=7, effect=0.0), RobustSwitches())
    assert curve.chosen == "global_curve" and curve.diagnostics["tau_shape"] is None
