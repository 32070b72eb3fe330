from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import (
    BinBounds,
    BoundsError,
    NoCellsError,
    compute_bin_bounds,
    find_bin_index,
    find_cell_bins,
    merge_equal_bounds,
    sum_bins,
)
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells

INF = np.inf


def used_bounds(bounds, i):
    return bounds.bin_bounds_VJ[i, : bounds.n_bins_V[i] + 1].tolist()


def test_bounds_by_hand():
    # value 1: cells 0..3 with 1 sample each, K = 2: half of the weight lies below cell 2 -> bounds 0, 2, 4 (/32).
    # value 2: 3 cells < K + 2, so it takes the bounds of id 0, as do id 0 and id 3 (without cells).
    # pooled: weights 1, 1, 1, 1 of cells 0..3 and 4 of cells 10, 11 and 2 of cell 20, 14 in all: half is reached
    # between cell 3 (4/14) and cell 10 (8/14): 8/14 is nearer to 7/14 -> bounds 0, 11, 21.
    cells = cells_by_hand(
        [(1, 0, 1, 0), (1, 1, 1, 1), (1, 2, 1, 0), (1, 3, 1, 1), (2, 10, 4, 0), (2, 11, 4, 1), (2, 20, 2, 0)], 4
    )
    bounds = compute_bin_bounds(cells, 2)
    assert (32 * bounds.bin_bounds_VJ).tolist() == [[0, 11, 21], [0, 2, 4], [0, 11, 21], [0, 11, 21]]
    assert bounds.n_bins_V.tolist() == [2, 2, 2, 2]


def test_one_heavy_cell_merges_bounds():
    # K = 3; shares before the cells: 0, .01, .98, .99, .995 ... : 1/3 is nearest to .01, 2/3 to .98, both sides of
    # the heavy cell 1; with the heavy cell first, both targets fall on its ends: 1/3 -> start (merges), 2/3 -> end.
    heavy_inside = cells_by_hand([(1, 0, 10, 1), (1, 1, 970, 9), (1, 2, 10, 1), (1, 3, 5, 1), (1, 4, 5, 1)], 2)
    heavy_first = cells_by_hand([(1, 0, 960, 9), (1, 1, 10, 1), (1, 2, 10, 1), (1, 3, 10, 1), (1, 4, 10, 1)], 2)
    assert (32 * compute_bin_bounds(heavy_inside, 3).bin_bounds_VJ[1]).tolist() == [0, 1, 2, 5]
    merged = compute_bin_bounds(heavy_first, 3)
    assert (32 * merged.bin_bounds_VJ[1]).tolist() == [0, 1, 5, INF]
    assert merged.n_bins_V.tolist() == [2, 2]


@settings(max_examples=60, deadline=None)
@given(some_cells(), st.integers(1, 12))
def test_bounds_are_the_oracles(cells, n_bins):
    by_value = [[] for _ in range(cells.n_values)]
    for i, cell, weight in zip(cells.field_value_id, cells.cell, cells.weight, strict=True):
        by_value[i].append((int(cell), int(weight)))
    bounds = compute_bin_bounds(cells, n_bins)
    assert [used_bounds(bounds, i) for i in range(cells.n_values)] == oracle.bin_bounds(by_value, n_bins)


@settings(max_examples=40, deadline=None)
@given(some_cells(), st.integers(1, 12))
def test_bounds_increase_and_bins_hold_every_sample_once(cells, n_bins):
    bounds = compute_bin_bounds(cells, n_bins)
    sums = sum_bins(cells, bounds)
    for i in range(cells.n_values):
        assert np.all(np.diff(used_bounds(bounds, i)) > 0)
        assert np.all(bounds.bin_bounds_VJ[i, bounds.n_bins_V[i] + 1 :] == INF)
        assert np.all(sums.n_samples_VK[i, bounds.n_bins_V[i] :] == 0)
    frequency = cells.sum_by_value(cells.n_samples.astype(float))
    frequency[0] = cells.n_samples.sum()  # row 0 is the sum over all
    assert sums.n_samples_VK.sum(axis=1).tolist() == frequency.tolist()
    assert sums.n_responses_VK[0].sum() == cells.n_responses.sum()
    np.testing.assert_allclose(sums.weight_VK, sums.n_samples_VK)
    np.testing.assert_allclose(sums.response_VK, sums.n_responses_VK)


def test_weights_move_the_bounds_as_repeated_rows_do():
    (z, s, y, _), _ = draw_rows(3000, 5, seed=3)
    twice = np.where(s > -2, 2, 1)
    weighted = cells_of_rows(z, s, y, 6, weight=twice)
    repeated = cells_of_rows(np.repeat(z, twice), np.repeat(s, twice), np.repeat(y, twice), 6)
    np.testing.assert_array_equal(
        compute_bin_bounds(weighted, 8).bin_bounds_VJ, compute_bin_bounds(repeated, 8).bin_bounds_VJ
    )


def test_last_bits_of_weights_do_not_move_a_tied_bound():
    # K = 3 and 8 equal weights: 1/3 and 2/3 lie between edges, 1/2 of K = 2 exactly on one; 9 of K = 2 is a tie.
    rows = [(1, j, 1, 0) for j in range(9)]
    exact = cells_by_hand(rows, 2)
    for noise in (1 + 1e-15, 1 - 1e-15):
        noisy = replace(exact, weight=exact.weight * np.where(np.arange(9) % 2, noise, 1.0) * 0.1)
        np.testing.assert_array_equal(
            compute_bin_bounds(noisy, 2).bin_bounds_VJ, compute_bin_bounds(exact, 2).bin_bounds_VJ
        )
    assert (32 * compute_bin_bounds(exact, 2).bin_bounds_VJ[1]).tolist() == [0, 4, 9]  # the lower edge


def test_bins_are_about_equal_on_a_fine_value():
    (z, s, y, _), _ = draw_rows(200_000, 1, seed=1)
    cells = cells_of_rows(z, s, y, 2)
    sums = sum_bins(cells, compute_bin_bounds(cells, 10))
    heaviest_cell = cells.weight.max()
    assert np.all(np.abs(sums.weight_VK[1] - 20_000) <= heaviest_cell)  # each of two bounds is off by half a cell
    np.testing.assert_array_equal(sums.weight_VK[0], sums.weight_VK[1])


def test_a_bin_index_by_hand():
    # bounds 0, 1, 2 (two bins): -5 -> below, 0 -> first, .99, 1 -> second (left-closed), 2 and 9 -> last
    index = find_bin_index(
        np.array([[0.0, 1.0, 2.0, INF]]), np.array([2]), np.zeros(6, np.int64), np.array([-5, 0, 0.99, 1, 2, 9.0])
    )
    assert index.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_mean_logit_that_rounds_up_to_the_cells_edge_stays_in_its_cell():
    # cell 0 is [0, 1/32); its mean was rounded to 1/32, which is a bound: all its samples lie below that bound
    cells = replace(cells_by_hand([(1, 0, 5, 1), (1, 1, 5, 1)], 2), logit=np.array([1 / 32, 1.5 / 32]))
    bounds = BinBounds(np.array([[0, 1 / 32, 2 / 32]] * 2), np.array([2, 2]))
    assert find_cell_bins(cells, bounds).tolist() == [0, 1]


def test_with_bounds_inside_cells_the_mean_logit_decides():
    cells = replace(cells_by_hand([(1, 0, 5, 1), (1, 1, 7, 2)], 2), logit=np.array([0.02, 0.04]))
    bounds = BinBounds(np.array([[0, 0.01, 0.05]] * 2), np.array([2, 2]))
    assert find_cell_bins(cells, bounds).tolist() == [1, 1]
    sums = sum_bins(cells, bounds)
    assert sums.n_samples_VK.tolist() == [[0, 12], [0, 12]]
    # an empty bin's mean logit is its middle; the other is (5·.02 + 7·.04)/12
    np.testing.assert_allclose(sums.mean_logit_VK, [[0.005, 0.38 / 12]] * 2)


def test_merge_equal_bounds_by_hand():
    merged = merge_equal_bounds(np.array([[0, 0, 1, 1, 2.0], [3, 3, 3, 3, 3.0], [0, 1, 2, 3, 4.0]]))
    assert merged.bin_bounds_VJ.tolist() == [[0, 1, 2, INF, INF], [3, 3 + 1 / 32, INF, INF, INF], [0, 1, 2, 3, 4]]
    assert merged.n_bins_V.tolist() == [2, 1, 4]
    assert merged.filled_VJ.tolist() == [[0, 1, 2, 2, 2], [3] + [3 + 1 / 32] * 4, [0, 1, 2, 3, 4]]


def test_all_scores_equal_give_one_bin_of_one_cell():
    bounds = compute_bin_bounds(cells_of_rows([1] * 9, [0.5] * 9, [0, 1, 0] * 3, 2), 20)
    assert used_bounds(bounds, 0) == used_bounds(bounds, 1) == [16 / 32, 17 / 32]


def test_faults():
    empty = cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False]))
    with pytest.raises(NoCellsError, match=r"0 logit cells.*rejects"):
        compute_bin_bounds(empty, 5)
    with pytest.raises(NoCellsError, match="0 logit cells"):
        sum_bins(empty, BinBounds(np.array([[0.0, 1.0]] * 2), np.array([1, 1])))
    with pytest.raises(BoundsError, match="n_bins is 0"):
        compute_bin_bounds(cells_by_hand([(1, 0, 1, 0)], 2), 0)
    with pytest.raises(BoundsError, match=r"id 1 are \[1.0, 0.0\] \(1 such ids\)"):
        merge_equal_bounds(np.array([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(BoundsError, match="must be finite"):
        merge_equal_bounds(np.array([[0.0, np.nan]]))
