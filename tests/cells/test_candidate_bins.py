from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import compute_bin_bounds, sum_bins
from adacalib.cells.candidate_bins import arrange_bins, compute_posterior_statistics
from tests.cells.small_world import some_cells


def table(rows):
    """(id, candidate, n_bins, bin, lower, upper, weight, responses, mean logit) → columns."""
    names = (
        "field_value_id",
        "n_bins_candidate",
        "n_bins",
        "bin_index",
        "lower_bound",
        "upper_bound",
        "sum_weight",
        "sum_weight_responses",
        "mean_logit",
    )
    kinds = [np.int32] * 4 + [np.float64] * 5
    return {name: np.array(c, k) for name, c, k in zip(names, zip(*rows, strict=True), kinds, strict=True)}


# id 0 is the global row; id 1's two bins were merged into one for candidate 2; rows in no order
BY_HAND = [
    (1, 2, 1, 0, 0.0, 1.0, 4.0, 1.0, 0.4),
    (0, 2, 2, 1, 0.5, 2.0, 6.0, 3.0, 1.0),
    (0, 1, 1, 0, -1.0, 2.0, 10.0, 3.0, 0.3),
    (0, 2, 2, 0, -1.0, 0.5, 4.0, 0.0, -0.5),
    (1, 1, 1, 0, 0.0, 1.0, 4.0, 1.0, 0.4),
]


def test_arranged_by_hand():
    bins = arrange_bins(table(BY_HAND), n_values=2)
    assert bins.candidates == (1, 2)
    inf = math.inf
    np.testing.assert_array_equal(bins.bin_bounds_VCJ, [[[-1, 2, inf], [-1, 0.5, 2]], [[0, 1, inf], [0, 1, inf]]])
    np.testing.assert_array_equal(bins.n_bins_VC, [[1, 2], [1, 1]])
    np.testing.assert_array_equal(bins.weight_VCK, [[[10, 0], [4, 6]], [[4, 0], [4, 0]]])
    np.testing.assert_array_equal(bins.response_VCK, [[[3, 0], [0, 3]], [[1, 0], [1, 0]]])
    np.testing.assert_array_equal(bins.mean_logit_VCK, [[[0.3, 0], [-0.5, 1]], [[0.4, 0], [0.4, 0]]])
    # bounds of one candidate are as wide as it needs
    np.testing.assert_array_equal(bins.bounds_of(0).bin_bounds_VJ, [[-1, 2], [0, 1]])
    np.testing.assert_array_equal(bins.bounds_of(1).n_bins_V, [2, 1])


def test_mean_logit_of_an_empty_bin_is_its_middle():
    bins = arrange_bins(table([(0, 2, 2, 0, -1.0, 2.0, 0.0, 0.0, np.nan), (0, 2, 2, 1, 2.0, 3.0, 1.0, 1.0, 2.5)]), 1)
    np.testing.assert_array_equal(bins.mean_logit_VCK, [[[0.5, 2.5]]])


def test_posterior_statistics_by_hand():
    # ȳ = 3/10. Filled bins (Σy + .15)/(n + .5): global 3.15/10.5, .15/4.5, 3.15/6.5; id 1 twice 1.15/4.5
    statistics = compute_posterior_statistics(arrange_bins(table(BY_HAND), 2))
    rates = [3.15 / 10.5, 0.15 / 4.5, 3.15 / 6.5, 1.15 / 4.5, 1.15 / 4.5]
    logits = [math.log(r / (1 - r)) for r in rates]
    counts = [math.log(1 + y) for y in (3, 0, 3, 1, 1)]
    filled = [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0)]
    for column, values in enumerate((logits, counts)):
        expected = (np.array(values) - np.mean(values)) / np.std(values)
        np.testing.assert_allclose([statistics[(*place, column)] for place in filled], expected, rtol=1e-9)
    # an empty bin has the mean rate's logit: (.5·.3)/.5 = .3
    empty = (math.log(0.3 / 0.7) - np.mean(logits)) / np.std(logits)
    assert statistics[1, 1, 1, 0] == pytest.approx(empty)


@settings(max_examples=30, deadline=None)
@given(some_cells(), st.integers(1, 6), st.integers(0, 9))
def test_a_table_in_any_order_gives_back_bounds_and_sums(cells, n_bins, seed):
    bounds = compute_bin_bounds(cells, n_bins)
    sums = sum_bins(cells, bounds)
    value, index = np.nonzero(np.arange(n_bins) < bounds.n_bins_V[:, None])
    order = np.random.default_rng(seed).permutation(len(value))
    value, index = value[order], index[order]
    columns = {
        "field_value_id": value,
        "n_bins_candidate": np.full(len(value), n_bins),
        "n_bins": bounds.n_bins_V[value],
        "bin_index": index,
        "lower_bound": bounds.bin_bounds_VJ[value, index],
        "upper_bound": bounds.bin_bounds_VJ[value, index + 1],
        "sum_weight": sums.weight_VK[value, index],
        "sum_weight_responses": sums.response_VK[value, index],
        "mean_logit": np.where(sums.weight_VK[value, index] > 0, sums.mean_logit_VK[value, index], np.nan),
    }
    bins = arrange_bins(columns, cells.n_values)
    np.testing.assert_array_equal(bins.bounds_of(0).bin_bounds_VJ, bounds.bin_bounds_VJ)
    np.testing.assert_array_equal(bins.bounds_of(0).n_bins_V, bounds.n_bins_V)
    np.testing.assert_array_equal(bins.weight_VCK[:, 0], sums.weight_VK)
    np.testing.assert_array_equal(bins.response_VCK[:, 0], sums.response_VK)
    np.testing.assert_allclose(bins.mean_logit_VCK[:, 0], sums.mean_logit_VK, rtol=1e-12, atol=1e-12)
    assert np.all(np.isfinite(compute_posterior_statistics(bins)))


def test_field_values_without_bins_are_counted():
    with pytest.raises(ValueError, match=r"2 of 6 \(field value, candidate\) pairs have no bins.*prepare_samples"):
        arrange_bins(table(BY_HAND), n_values=3)


def test_a_field_value_without_bins_has_the_global_rows_where_it_may_be_unseen():
    bins = arrange_bins(table(BY_HAND), n_values=4, may_be_unseen=True)
    np.testing.assert_array_equal(bins.is_unseen_V, [True, False, True, True])
    arrays = (bins.bin_bounds_VCJ, bins.n_bins_VC, bins.weight_VCK, bins.response_VCK, bins.mean_logit_VCK)
    for array in arrays:
        np.testing.assert_array_equal(array[2:], array[[0, 0]])
    np.testing.assert_array_equal(bins.weight_VCK[1], [[4, 0], [4, 0]])
    np.testing.assert_array_equal(arrange_bins(table(BY_HAND), n_values=2).is_unseen_V, [True, False])


@pytest.mark.parametrize("left_out", [(1, 2), (0, 1), (0, 2)], ids=["a candidate's", "the global row's", "the same"])
def test_bins_that_lack_for_another_reason_are_refused_there_too(left_out):
    rows = [row for row in BY_HAND if row[:2] != left_out]
    with pytest.raises(ValueError, match=r"1 of 4 \(field value, candidate\) pairs have no bins"):
        arrange_bins(table(rows), n_values=2, may_be_unseen=True)


def test_no_rows():
    nothing = {name: values[:0] for name, values in table(BY_HAND).items()}
    with pytest.raises(ValueError, match="no rows of the calibrated field; run from compute_bin_statistics"):
        arrange_bins(nothing, n_values=2)
