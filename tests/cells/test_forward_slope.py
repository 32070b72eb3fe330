"""adacalib/cells/forward_slope.py: the slope that later days ask for, and the offset that keeps the mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.forward_slope import ERRORS_TO_SPARE, MIN_SLOPE, fit_forward_slope, fit_offset
from tests.cells.small_world import cells_by_hand, cells_of_rows, some_cells


def draw_cells(slope, n_rows=20_000, seed=0, intercept=0.0):
    """(cells, log-odds): labels drawn from slope times the log-odds of the cells, plus an intercept."""
    rng = np.random.default_rng(seed)
    z, s = rng.integers(1, 5, n_rows), rng.normal(-1, 1, n_rows)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-(slope * s + intercept)))).astype(np.int64)
    cells = cells_of_rows(z, s, y, 5)
    return cells, cells.logit


def test_two_points_by_hand():
    # two scores, two free parameters: the line goes through both smoothed rates. 400 labels 1 and 400 labels 0 count
    # 401/402 and 1/402: (100·401 + 300)/402 of 400 respond at -2, log-odds -log(1203/404), and as many do not at 2
    cells = cells_by_hand([(1, 0, 400, 100), (1, 1, 400, 300)], 2)
    found = fit_forward_slope(cells, np.array([-2.0, 2.0]))
    rate = 40_400 / 402 / 400
    assert found.measured == pytest.approx(np.log((1 - rate) / rate) / 2)
    # information of the slope: Σ n·p(1 − p)·(±2)²
    assert found.standard_error == pytest.approx((800 * rate * (1 - rate) * 4) ** -0.5)
    assert found.slope == pytest.approx(found.measured + 2 * found.standard_error)
    assert found.slope < 1


def test_is_the_slope_of_an_independent_fit():
    cells, logit = draw_cells(0.7, intercept=0.4)
    weight, positive = cells.weight, cells.response.sum()
    negative = weight.sum() - positive
    # Platt's targets: a label 1 counts (N₊ + 1)/(N₊ + 2), a label 0 1/(N₋ + 2)
    response = cells.response * (positive + 1) / (positive + 2) + (weight - cells.response) / (negative + 2)

    def loss(line):
        p = 1 / (1 + np.exp(-(line[0] * logit + line[1])))
        return -np.sum(response * np.log(p) + (weight - response) * np.log(1 - p))

    expected = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-9})
    found = fit_forward_slope(cells, logit)
    assert found.measured == pytest.approx(expected.x[0], abs=1e-5)
    assert found.slope == pytest.approx(found.measured + ERRORS_TO_SPARE * found.standard_error)


@pytest.mark.parametrize(("slope", "level"), [(0.5, 0.0), (0.8, -1.5), (0.9, 2.0)])
def test_finds_the_slope_whatever_the_level_did(slope, level):
    cells, logit = draw_cells(slope, n_rows=100_000, seed=3, intercept=level)
    found = fit_forward_slope(cells, logit)
    assert abs(found.measured - slope) < 4 * found.standard_error
    assert slope < found.slope < 1


@pytest.mark.parametrize("slope", [1.0, 1.3])
def test_nothing_shrinks_where_later_days_do_not_ask_for_it(slope):
    for seed in range(5):
        found = fit_forward_slope(*draw_cells(slope, seed=seed))
        assert found.slope == 1.0
        assert found.measured == pytest.approx(slope, abs=4 * found.standard_error)


def test_scores_keep_their_order_where_later_days_turn_them_round():
    found = fit_forward_slope(*draw_cells(-0.8))
    assert found.measured < -0.5
    assert found.slope == MIN_SLOPE > 0


@pytest.mark.parametrize(
    ("rows", "logit"),
    [
        ([(1, 0, 9, 0), (1, 1, 9, 0)], [0.0, 1.0]),  # one class
        ([(1, 0, 9, 9), (1, 1, 9, 9)], [0.0, 1.0]),
        ([(1, 0, 9, 3), (1, 1, 9, 6)], [0.5, 0.52]),  # one score
        ([(1, 0, 9, 0), (1, 1, 9, 9)], [-1.0, 1.0]),  # separable
        ([(1, 0, 2, 1), (1, 1, 2, 0)], [-1.0, 1.0]),  # a handful of labels
    ],
)
def test_nothing_shrinks_where_later_days_know_nothing(rows, logit):
    found = fit_forward_slope(cells_by_hand(rows, 2), np.array(logit))
    assert found.slope == 1.0
    assert (found.measured is None) == (found.standard_error is None) == (logit == [0.5, 0.52])


@settings(max_examples=50, deadline=None)
@given(some_cells(), st.floats(-5, 5))
def test_where_the_logit_begins_plays_no_part(cells, shift):
    found, moved = (fit_forward_slope(cells, cells.logit + by) for by in (0.0, shift))
    assert MIN_SLOPE <= found.slope <= 1
    if found.measured is not None:
        assert moved.measured == pytest.approx(found.measured, rel=1e-6, abs=1e-6)
        assert moved.standard_error == pytest.approx(found.standard_error, rel=1e-6)


def test_twice_the_scale_is_half_the_slope():
    cells, logit = draw_cells(0.8, seed=8)
    once, twice = fit_forward_slope(cells, logit), fit_forward_slope(cells, 2 * logit)
    assert twice.measured == pytest.approx(once.measured / 2)
    assert twice.standard_error == pytest.approx(once.standard_error / 2)


def test_offset_by_hand_and_in_general():
    # all at log-odds 2: half of it is 1, and 1 is missing, whatever the labels say
    cells = cells_by_hand([(1, 0, 20, 18), (2, 0, 20, 12)], 3)
    assert fit_offset(cells, np.full(2, 2.0), 0.5) == pytest.approx(1)
    cells, logit = draw_cells(0.8, seed=5)
    offset = fit_offset(cells, logit, 0.7)
    before, after = (np.sum(cells.weight / (1 + np.exp(-each))) for each in (logit, 0.7 * logit + offset))
    assert after == pytest.approx(before)
    assert fit_offset(cells, logit, 1.0) == 0.0  # nothing shrinks, nothing moves


def test_no_cells_are_refused():
    nothing = cells_by_hand([(1, 0, 9, 3)], 2).select(np.array([False]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_offset(nothing, np.zeros(0), 0.9)
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_forward_slope(nothing, np.zeros(0))
