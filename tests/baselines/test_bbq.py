from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.bbq import find_n_bins_range, fit_bbq
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import pool_values
from tests.baselines.oracle_values import read_oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def oracle_bbq(cells):
    """Rates of the pooled cells, slowly: every marginal likelihood as a product of one-step-ahead predictions."""
    sums = {}
    for cell, n, y in zip(cells.cell.tolist(), cells.weight.tolist(), cells.response.tolist(), strict=True):
        old = sums.get(cell, (0, 0))
        sums[cell] = (old[0] + round(n), old[1] + round(y))
    order, total = sorted(sums), sum(n for n, _ in sums.values())
    low = max(1, math.floor(total ** (1 / 3) / 10))
    high = min(math.ceil(total / 5), math.ceil(10 * total ** (1 / 3)))
    averaged = {}
    for n_bins in range(low, high + 1):
        passed, bins = 0, {}
        for cell in order:
            bins.setdefault((2 * passed + sums[cell][0]) * n_bins // (2 * total), []).append(cell)
            passed += sums[cell][0]
        binning = tuple(tuple(bins[k]) for k in sorted(bins))
        averaged[binning] = _score(binning, sums)
    best = max(log_score for log_score, _ in averaged.values())
    norm = sum(math.exp(log_score - best) for log_score, _ in averaged.values())
    result = dict.fromkeys(order, 0.0)
    for log_score, rates in averaged.values():
        for cell in order:
            result[cell] += math.exp(log_score - best) / norm * rates[cell]
    return [result[cell] for cell in order]


def _score(binning, sums):
    bounds = [0.0] + [1 / (1 + math.exp(-cells[0] / 32)) for cells in binning[1:]] + [1.0]
    log_score, rates = 0.0, {}
    for k, cells in enumerate(binning):
        middle, prior = (bounds[k] + bounds[k + 1]) / 2, 2
        n, y = sum(sums[cell][0] for cell in cells), sum(sums[cell][1] for cell in cells)
        for i in range(y):
            log_score += math.log((i + prior * middle) / (i + prior))
        for i in range(n - y):
            log_score += math.log((i + prior * (1 - middle)) / (y + i + prior))
        rates |= dict.fromkeys(cells, (y + prior * middle) / (n + prior))
    return log_score, rates


def test_two_cells_by_hand():
    # 20 samples: 1 to ceil(20/5) = 4 bins are tried; on two cells they are two binnings, all together or each alone.
    # Together, Beta(1, 1): ∫ p^10 (1 - p)^10 dp = 10!·10!/21!. Apart, bound at σ(1) = .7310586, middles .3655293 and
    # .8655293, so Beta(.7311, 1.2689) and Beta(1.7311, .2689): Γ(2.7311)Γ(9.2689)/Γ(12) / (Γ(.7311)Γ(1.2689)).
    fitted = fit_bbq(cells_by_hand([(1, 0, 10, 2), (1, 32, 10, 8)], 2))
    low, high = 0.7310585786, 1.7310585786
    together = math.factorial(10) ** 2 / math.factorial(21)

    def apart(alpha, y):
        ones, zeros = math.gamma(y + alpha), math.gamma(10 - y + 2 - alpha)
        return ones * zeros / math.gamma(12) / (math.gamma(alpha) * math.gamma(2 - alpha))

    both = apart(low, 2) * apart(high, 8)
    np.testing.assert_array_equal(fitted.n_bins_M, [1, 2])
    np.testing.assert_allclose(fitted.binning_weight_M, np.array([together, both]) / (together + both), rtol=1e-8)
    share = both / (together + both)
    expected = [share * (2 + low) / 12 + (1 - share) * 11 / 22, share * (8 + high) / 12 + (1 - share) * 11 / 22]
    at = np.array([-9.0, np.nextafter(1.0, 0), 1.0, 9.0])
    np.testing.assert_allclose(fitted.predict(at, np.zeros(4, np.int64)), np.repeat(expected, 2), rtol=1e-8)


@pytest.mark.parametrize(("n_rows", "seed"), [(60, 1), (300, 2), (1200, 3)])
def test_bbq_is_the_oracles(n_rows, seed):
    (z, s, y, _), _ = draw_rows(n_rows, 3, seed)
    cells = cells_of_rows(z, s, y, 4)
    fitted = fit_bbq(cells)
    pooled = pool_values(cells)
    np.testing.assert_allclose(fitted.predict(pooled.logit, pooled.field_value_id), oracle_bbq(cells), rtol=1e-9)


def test_binnings_are_netcals():
    cells, oracle = read_oracle("even", "netcal")
    tried = find_n_bins_range(cells.weight.sum())
    assert [tried[0], tried[-1]] == oracle["n_bins_range"]
    assert len(oracle["rates_of_levels_by_n_bins"]) == 6
    for n_bins, rates in oracle["rates_of_levels_by_n_bins"].items():
        starts = find_equal_frequency_bins(cells, int(n_bins))
        assert len(starts) == int(n_bins)
        bin_rates = np.add.reduceat(cells.response, starts) / np.add.reduceat(cells.weight, starts)
        np.testing.assert_allclose(np.repeat(bin_rates, np.diff(np.append(starts, len(cells)))), rates, rtol=1e-12)


def test_prediction_is_netcals_where_one_binning_has_all_the_weight():
    # elsewhere BIC is not the marginal likelihood; here what is left is the prior's two samples per bin of 500
    cells, oracle = read_oracle("step", "netcal")
    predicted = fit_bbq(cells).predict(cells.logit, cells.field_value_id)
    np.testing.assert_allclose(predicted, oracle["predicted"], atol=2 / 500)
    np.testing.assert_allclose(oracle["predicted"], [0.1, 0.8], atol=0.05)


def test_numbers_of_bins():
    # N = 8000: root 20, from 2 to 200; N = 12: ceil(12/5) = 3; never none
    assert find_n_bins_range(8000) == range(2, 201)
    assert find_n_bins_range(12) == range(1, 4)
    assert find_n_bins_range(0.5) == range(1, 2)


def test_scores_that_say_nothing_get_one_bin():
    cells = cells_by_hand([(1, cell, 100, 30) for cell in range(-64, 64, 4)], 2)
    fitted = fit_bbq(cells)
    assert fitted.n_bins_M[np.argmax(fitted.binning_weight_M)] == 1
    assert fitted.binning_weight_M.max() > 0.95
    np.testing.assert_allclose(fitted.rates_C, 0.3, atol=0.001)


def test_more_bins_than_cells_count_once():
    # 10^9 samples in 3 cells: numbers of bins from 100 to 10,000 are the same binning, each cell alone
    fitted = fit_bbq(cells_by_hand([(1, 0, 10**8, 10**6), (1, 1, 8 * 10**8, 10**7), (1, 2, 10**8, 10**7)], 2))
    np.testing.assert_array_equal(fitted.n_bins_M, [3])
    np.testing.assert_allclose(fitted.rates_C, [0.01, 0.0125, 0.1], rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_sum_of_predictions_is_off_by_the_prior_at_most(cells):
    fitted = fit_bbq(cells)
    assert fitted.binning_weight_M.sum() == pytest.approx(1)
    predicted = fitted.predict(cells.logit, cells.field_value_id)
    off = abs(np.sum(cells.weight * predicted) - cells.response.sum())
    assert off <= 2 * np.sum(fitted.binning_weight_M * fitted.n_bins_M) + 1e-6
