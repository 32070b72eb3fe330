from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.histogram_binning import fit_histogram_binning
from adacalib.baselines.histogram_per_value import fit_histogram_per_value
from adacalib.cells.bin_bounds import BoundsError
from tests.cells.small_world import cells_by_hand, cells_of_rows, cells_of_tenths, draw_rows, some_cells


def oracle_rates(cells, n_bins):
    """Rate of each cell: per value a slow loop in whole numbers."""
    rows = list(
        zip(
            cells.field_value_id.tolist(),
            [round(n) for n in cells.weight],
            [round(y) for y in cells.response],
            strict=True,
        )
    )
    rates = []
    for i, (z, _, _) in enumerate(rows):
        own = [(k, n, y) for k, (other, n, y) in enumerate(rows) if other == z]
        total, passed, bins, mine = sum(n for _, n, _ in own), 0, {}, None
        for k, n, y in own:
            b = (2 * passed + n) * n_bins // (2 * total)
            bins.setdefault(b, []).append((n, y))
            mine = b if k == i else mine
            passed += n
        rates.append(sum(y for _, y in bins[mine]) / sum(n for n, _ in bins[mine]))
    return rates


def test_bins_by_hand():
    # value 1: 10 samples each in four cells, two bins of 20: 4/20 and 11/20, bound at 1; value 2: two cells, two bins
    cells = cells_by_hand(
        [(1, -32, 10, 1), (1, 0, 10, 3), (1, 32, 10, 2), (1, 64, 10, 9), (2, 0, 10, 10), (2, 64, 10, 5)], 4
    )
    fitted = fit_histogram_per_value(cells, n_bins=2)
    np.testing.assert_array_equal(fitted.lower_bounds_VK, [[-1, 1], [-1, 1], [0, 2], [np.inf, np.inf]])
    np.testing.assert_array_equal(fitted.n_bins_V, [2, 2, 2, 0])
    at = np.array([-9, np.nextafter(1.0, 0), 1.0, 9, -9, 1.9, 2.0])
    ids = np.array([1, 1, 1, 1, 2, 2, 2])
    np.testing.assert_allclose(fitted.predict(at, ids), [0.2, 0.2, 0.55, 0.55, 1 - 1e-7, 1 - 1e-7, 0.5], rtol=1e-12)
    # pooled: mid-ranks 5, 20, 35, 50 of 60: {-32, 0} with 14/30, {32, 64} with 16/30; for id 0, no cells, unknown ids
    np.testing.assert_allclose(fitted.predict(np.zeros(3), np.array([0, 3, 99])), 14 / 30)
    np.testing.assert_allclose(fitted.predict(np.ones(3), np.array([0, 3, -1])), 16 / 30)


def test_fewer_cells_than_bins():
    # three cells and ten bins: a bin per cell, those between do not exist
    fitted = fit_histogram_per_value(cells_by_hand([(1, 0, 5, 1), (1, 8, 90, 9), (1, 16, 5, 4)], 2))
    assert fitted.n_bins_V[1] == 3
    at = np.array([-5, 0.0, 0.24, 0.25, 0.49, 0.5, 5])
    np.testing.assert_allclose(fitted.predict(at, np.ones(7, np.int64)), [0.2, 0.2, 0.2, 0.1, 0.1, 0.8, 0.8])


def test_one_class_keeps_its_rate():
    # a value without a response, one of responses only, and in a third a bin of each: never .5, never the others' rate
    cells = cells_by_hand([(1, 0, 50, 0), (2, 0, 1, 1), (3, 0, 20, 0), (3, 32, 20, 20)], 4)
    fitted = fit_histogram_per_value(cells, n_bins=2)
    predicted = fitted.predict(np.array([0.0, 0.0, 0.0, 1.0]), np.array([1, 2, 3, 3]))
    np.testing.assert_allclose(predicted, [1e-7, 1 - 1e-7, 1e-7, 1 - 1e-7], rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_rates_are_the_oracles_and_sum_to_the_responses(cells):
    for n_bins in (1, 3, 10):
        fitted = fit_histogram_per_value(cells, n_bins)
        predicted = fitted.predict(cells.logit, cells.field_value_id)
        np.testing.assert_allclose(predicted, np.clip(oracle_rates(cells, n_bins), 1e-7, 1 - 1e-7), rtol=1e-9)
        summed = cells.sum_by_value(cells.weight * predicted)
        np.testing.assert_allclose(summed, cells.sum_by_value(cells.response), atol=1e-7 * cells.weight.sum() + 1e-9)


def test_unseen_values_get_the_global_histogram():
    (z, s, y, _), _ = draw_rows(4001, 6, seed=8)
    cells = cells_of_rows(z, s, y, 7)
    at = np.linspace(-8, 5, 300)
    expected = fit_histogram_binning(cells, 10).predict(at, np.zeros(300, np.int64))
    np.testing.assert_allclose(fit_histogram_per_value(cells).predict(at, np.zeros(300, np.int64)), expected)


def test_cells_of_id_0_count_in_the_pooled_bins_only():
    fitted = fit_histogram_per_value(cells_by_hand([(0, 0, 10, 10), (1, 0, 30, 0)], 2), n_bins=4)
    np.testing.assert_allclose(fitted.predict(np.zeros(2), np.array([0, 1])), [0.25, 1e-7])


def test_last_bits_of_the_weights_move_no_cell():
    # mid-ranks (j + .5)/1.5 of 15 cells of weight 1 are whole for j = 1, 4, …; the tie goes up
    expected = np.array([0, 1, 3, 4, 6, 7, 9, 10, 12, 13]) / 32
    first, *others = [fit_histogram_per_value(cells_of_tenths(15, seed), 10) for seed in range(20)]
    np.testing.assert_array_equal(first.lower_bounds_VK, [expected, expected])
    for other in others:
        np.testing.assert_array_equal(other.lower_bounds_VK, first.lower_bounds_VK)
        np.testing.assert_allclose(other.bin_rates_VK, first.bin_rates_VK, rtol=1e-12)


def test_no_bins():
    with pytest.raises(BoundsError, match="n_bins is 0"):
        fit_histogram_per_value(cells_by_hand([(1, 0, 1, 0)], 2), n_bins=0)
