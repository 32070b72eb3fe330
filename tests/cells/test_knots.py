from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import BinBounds, compute_bin_bounds
from adacalib.cells.knots import (
    MIN_SLOPE,
    BinShifts,
    compute_bin_shifts,
    fit_strength,
    make_monotone,
    pool_adjacent_violators,
    spread_to_bounds,
)
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells


def test_pool_adjacent_violators_by_hand():
    # 1 2 3 stays; 3 2 1 pools to 2; 1 3 2 4 -> 1 2.5 2.5 4; 4 1 1 -> 2 2 2;
    # a length of 2 ignores the rest
    values = np.array([[1, 2, 3, 4], [3, 2, 1, 9], [1, 3, 2, 4], [4, 1, 1, 0], [5, 1, -7, -9.0]])
    pooled = pool_adjacent_violators(values, np.array([4, 3, 4, 3, 2]))
    np.testing.assert_allclose(
        pooled, [[1, 2, 3, 4], [2, 2, 2, 2], [1, 2.5, 2.5, 4], [2, 2, 2, 2], [3, 3, 3, 3]], atol=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.floats(-9, 9), min_size=8, max_size=8), st.integers(1, 8)), min_size=1, max_size=6)
)
def test_pool_adjacent_violators_is_the_min_max_formula(rows):
    values, length = np.array([row for row, _ in rows]), np.array([n for _, n in rows])
    pooled = pool_adjacent_violators(values, length)
    for i, n in enumerate(length):
        expected = oracle.isotonic(values[i, :n].tolist(), [1.0] * n)
        np.testing.assert_allclose(pooled[i, :n], expected, atol=1e-9)
        assert np.all(pooled[i, n:] == pooled[i, n - 1])


def test_strength_by_hand():
    # all observed equal to expected: no bin effect, m at its upper end e^9
    assert fit_strength(np.full(50, 1000.0), np.full(50, 1000.0)) == pytest.approx(np.exp(9), rel=0.02)
    assert fit_strength(np.zeros(0), np.zeros(0)) == pytest.approx(np.exp(9))
    # half of the bins with none, half with twice the mean, large counts: m near its small end
    assert fit_strength(np.tile([0.0, 2e4], 25), np.full(50, 1e4)) < 0.5


def test_strength_of_a_gamma_poisson_world_is_recovered():
    rng = np.random.default_rng(4)
    mean = rng.uniform(1, 60, 20_000)
    observed = rng.poisson(mean * rng.gamma(8.0, 1 / 8.0, len(mean)))
    assert fit_strength(observed.astype(float), mean) == pytest.approx(8.0, rel=0.06)


def test_shift_by_hand():
    # one value, two bins [0, 1/32) and [1/32, 2/32), η = 0, n = 40, Σy = 30 and 10: E = 20, V = .5, so P/V = 60, 20,
    # E/V = 40, rate .5: shift = log((60 + m)/(40 + m))/.5
    cells = cells_by_hand([(1, 0, 40, 30), (1, 1, 40, 10)], 2)
    bounds = BinBounds(np.array([[0, 1 / 32, 2 / 32]] * 2), np.array([2, 2]))
    shifts = compute_bin_shifts(cells, bounds, np.zeros(2))
    m = shifts.strength
    np.testing.assert_allclose(
        shifts.shift_VK, [[0, 0], [2 * np.log((60 + m) / (40 + m)), 2 * np.log((20 + m) / (40 + m))]]
    )
    assert shifts.weight_VK.tolist() == [[0, 0], [40, 40]]


def test_shifts_are_the_oracles():
    (z, s, y, _), _ = draw_rows(20_000, 12, seed=8)
    cells = cells_of_rows(z, s, y, 13)
    bounds = compute_bin_bounds(cells, 6)
    eta = 0.8 * cells.logit - 0.3
    shifts = compute_bin_shifts(cells, bounds, eta)
    used = [bounds.bin_bounds_VJ[i, : bounds.n_bins_V[i] + 1].tolist() for i in range(13)]
    by_value = list_by_value(cells, cells.logit, eta, cells.weight, cells.response)
    expected, weights, m = oracle.bin_shifts(by_value, used)
    assert shifts.strength == pytest.approx(m, rel=0.02)
    for i in range(13):
        np.testing.assert_allclose(
            shifts.shift_VK[i, : len(expected[i])], expected[i], atol=5e-3
        )  # the oracle's m is on a grid of .01
        np.testing.assert_allclose(shifts.weight_VK[i, : len(expected[i])], weights[i])

    eta_VJ = 0.8 * bounds.filled_VJ - 0.3
    monotone_VJ = make_monotone(eta_VJ + spread_to_bounds(shifts), bounds)
    for i in range(13):
        knots = oracle.knots(used[i], eta_VJ[i].tolist(), expected[i], weights[i])
        np.testing.assert_allclose(monotone_VJ[i, : len(knots)], knots, atol=5e-3)


@settings(max_examples=40, deadline=None)
@given(some_cells(), st.integers(1, 8), st.floats(-12, 12))
def test_shifts_are_finite_and_limited(cells, n_bins, offset):
    shifts = compute_bin_shifts(cells, compute_bin_bounds(cells, n_bins), cells.logit + offset)
    assert np.all(np.isfinite(shifts.shift_VK))
    assert np.all(np.abs(shifts.shift_VK) <= 2)
    assert np.all(shifts.shift_VK[shifts.weight_VK == 0] == 0)


def test_no_effect_means_no_shift():
    # counts exactly as expected in every bin
    cells = cells_by_hand([(1, j, 1000, 500) for j in range(8)], 2)
    shifts = compute_bin_shifts(cells, compute_bin_bounds(cells, 4), np.zeros(8))
    np.testing.assert_allclose(shifts.shift_VK, 0, atol=1e-12)


def test_spread_to_bounds_by_hand():
    # shifts 1, 3, 5 of weights 1, 3, 0: outer bounds 1 and 0 (its bin is empty: shift 0 there by definition),
    # inner (1·1 + 3·3)/4 and 3 (the empty bin has no weight)
    shifts = BinShifts(np.array([[1, 3, 0.0]]), np.array([[1, 3, 0.0]]), 1.0)
    assert spread_to_bounds(shifts).tolist() == [[1, 2.5, 3, 0]]


def test_make_monotone_by_hand():
    # bounds 0, 1, 2; knots 0, -1, 5: after taking off .02·bound 0, -1.02, 4.96: the first two pool to -.51
    bounds = BinBounds(np.array([[0, 1, 2.0], [0, 1, np.inf]]), np.array([2, 1]))
    monotone = make_monotone(np.array([[0, -1, 5.0], [3, 4, -100]]), bounds)
    np.testing.assert_allclose(monotone, [[-0.51, -0.49, 5], [3, 4, 4]])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(-9, 9), min_size=6, max_size=6), min_size=1, max_size=5), st.integers(1, 5))
def test_knots_rise_by_the_least_slope(knots, n_bins):
    bounds_VJ = np.tile(np.where(np.arange(6) <= n_bins, np.arange(6) * 0.5, np.inf), (len(knots), 1))
    monotone = make_monotone(np.array(knots), BinBounds(bounds_VJ, np.full(len(knots), n_bins)))
    assert np.all(np.diff(monotone[:, : n_bins + 1], axis=1) >= 0.5 * MIN_SLOPE - 1e-12)
    assert np.all(monotone[:, n_bins:] == monotone[:, [n_bins]])
