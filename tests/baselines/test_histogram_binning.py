from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.histogram_binning import HistogramBinning, fit_histogram_binning
from adacalib.cells.bin_bounds import BoundsError
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import pool_values
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def oracle_bins(cells, n_bins):
    """[(first cell, rate)] of the non-empty bins: slow loops over a dictionary of pooled cells."""
    sums = {}
    for cell, n, y in zip(cells.cell.tolist(), cells.weight.tolist(), cells.response.tolist(), strict=True):
        old = sums.get(cell, (0, 0))
        sums[cell] = (old[0] + n, old[1] + y)
    total, passed, bins = sum(n for n, _ in sums.values()), 0, {}
    for cell in sorted(sums):
        n, y = sums[cell]
        k = int((2 * passed + n) * n_bins // (2 * total))
        first, bin_n, bin_y = bins.get(k, (cell, 0, 0))
        bins[k] = (first, bin_n + n, bin_y + y)
        passed += n
    return [(first, y / n) for first, n, y in (bins[k] for k in sorted(bins))]


def test_bins_by_hand():
    # 10 samples each at cells -32, 0, 32, 64; two bins of 20: (1 + 3)/20 = .2 and (2 + 9)/20 = .55, bound at 32/32
    cells = cells_by_hand([(1, -32, 10, 1), (2, 0, 10, 3), (1, 32, 10, 2), (1, 64, 10, 9)], 3)
    fitted = fit_histogram_binning(cells, n_bins=2)
    np.testing.assert_array_equal(fitted.inner_bounds, [1.0])
    np.testing.assert_allclose(fitted.bin_rates, [0.2, 0.55])
    # the bound itself belongs to the bin above it, its neighbour below to the one below; outer bins go on for ever
    at = np.array([-16.1, -1, np.nextafter(1.0, 0), 1.0, 2.0, 16.1])
    np.testing.assert_allclose(fitted.predict(at, np.zeros(6, np.int64)), [0.2, 0.2, 0.2, 0.55, 0.55, 0.55])


def test_rates_may_fall():
    cells = cells_by_hand([(1, 0, 10, 9), (1, 32, 10, 1)], 2)
    np.testing.assert_allclose(
        fit_histogram_binning(cells, 2).predict(np.array([0.0, 1.0]), np.zeros(2, np.int64)), [0.9, 0.1]
    )


def test_a_heavy_cell_stays_whole():
    # shares .05, .9, .05: mid-ranks .025, .5, .975, bins 0, 5, 9 of 10; the other seven do not exist
    cells = cells_by_hand([(1, 0, 5, 1), (1, 1, 90, 9), (1, 2, 5, 4)], 2)
    fitted = fit_histogram_binning(cells)
    np.testing.assert_array_equal(fitted.inner_bounds, [1 / 32, 2 / 32])
    np.testing.assert_allclose(fitted.bin_rates, [0.2, 0.1, 0.8])


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_bins_are_the_oracles(cells):
    for n_bins in (1, 3, 10):
        fitted = fit_histogram_binning(cells, n_bins)
        firsts, rates = zip(*oracle_bins(cells, n_bins), strict=True)
        np.testing.assert_array_equal(fitted.inner_bounds * 32, firsts[1:])
        np.testing.assert_allclose(fitted.bin_rates, rates, rtol=1e-12)


def test_fit_and_prediction_share_their_bins():
    # every row, put into a bin by predict(), meets exactly the mean label of its bin; some logits lie on cell edges
    (_, s, y, _), _ = draw_rows(4000, 4, seed=7)
    s[::3] = np.round(s[::3] * 32) / 32
    fitted = fit_histogram_binning(cells_of_rows(np.ones(4000, np.int64), s, y, 2))
    predicted = fitted.predict(s, np.zeros(4000, np.int64))
    assert len(fitted.bin_rates) == 10
    for rate in fitted.bin_rates:
        inside = np.isclose(predicted, rate, rtol=1e-12)
        assert 300 < inside.sum() < 500
        assert y[inside].mean() == pytest.approx(rate)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_the_mean_of_the_fit_is_kept(cells):
    fitted = fit_histogram_binning(cells)
    # at its own cells: sums of predictions are sums of labels, up to the clip to [1e-7, 1 - 1e-7]
    predicted = fitted.predict(cells.logit, cells.field_value_id)
    assert np.sum(cells.weight * predicted) == pytest.approx(cells.response.sum(), abs=2e-7 * cells.weight.sum())


def test_one_class_bins_are_clipped_only():
    fitted = fit_histogram_binning(cells_by_hand([(1, 0, 3, 0), (1, 32, 3, 3)], 2), 2)
    np.testing.assert_array_equal(fitted.bin_rates, [0, 1])
    np.testing.assert_array_equal(fitted.predict(np.array([0, 1.0]), np.zeros(2, np.int64)), [1e-7, 1 - 1e-7])


def test_equal_frequency_bins_by_hand():
    pooled = pool_values(cells_by_hand([(1, cell, 10, 0) for cell in range(8)], 2))
    np.testing.assert_array_equal(find_equal_frequency_bins(pooled, 4), [0, 2, 4, 6])
    np.testing.assert_array_equal(find_equal_frequency_bins(pooled, 1), [0])
    np.testing.assert_array_equal(find_equal_frequency_bins(pooled, 1000), range(8))


def test_no_bins():
    with pytest.raises(BoundsError, match=r"n_bins is 0: .* from 1 up"):
        fit_histogram_binning(cells_by_hand([(1, 0, 1, 0)], 2), n_bins=0)


def test_zero_is_a_bound_like_any_other():
    fitted = HistogramBinning(np.array([0.0]), np.array([0.25, 0.75]))
    np.testing.assert_array_equal(fitted.predict(np.array([0.0, -1e-300]), np.zeros(2, np.int64)), [0.75, 0.25])
