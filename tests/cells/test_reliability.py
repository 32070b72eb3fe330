from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.reliability import compute_reliability
from tests.cells.small_world import cells_of_tenths


def arrays(rows):
    """(cell, weight, responses, Σ score, n) → columns."""
    cell, weight, response, score_sum, n = (np.array(column) for column in zip(*rows, strict=True))
    return cell, weight * 1.0, response * 1.0, score_sum * 1.0, n


def wilson(rate, n):
    z = 1.959963984540054
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return center - half, center + half


def test_two_bins_by_hand():
    # weights 4, 4, 8 of 16: mid-ranks .125, .375, .75, so bins 0, 0, 1; cell 7 comes twice and out of order
    found = compute_reliability(
        *arrays([(9, 8, 4, 6.0, 8), (7, 3, 1, 1.2, 3), (2, 4, 1, 0.4, 4), (7, 1, 0, 0.4, 1)]), n_bins=2
    )
    np.testing.assert_allclose(found.mean_score, [2.0 / 8, 6.0 / 8])
    np.testing.assert_allclose(found.response_rate, [2 / 8, 4 / 8])
    assert found.n_samples.tolist() == [8, 8]
    np.testing.assert_allclose([found.rate_low[0], found.rate_high[0]], wilson(0.25, 8), rtol=1e-12)
    # Wilson's interval of 4 of 8 from the textbook: .2152 to .7848
    assert found.rate_low[1] == pytest.approx(0.2152, abs=1e-4)
    assert found.rate_high[1] == pytest.approx(0.7848, abs=1e-4)


def test_a_heavy_cell_stays_whole_and_empty_bins_do_not_come_out():
    # weights 1, 98, 1: mid-ranks .005, .5, .995 → of 10 bins 0, 5 and 9
    found = compute_reliability(*arrays([(0, 1, 0, 0.1, 1), (1, 98, 49, 49.0, 98), (2, 1, 1, 0.9, 1)]), n_bins=10)
    assert found.n_samples.tolist() == [1, 98, 1]
    # none of 1 and 1 of 1: the interval stays within [0, 1]
    assert found.rate_low[0] == 0
    assert found.rate_high[2] == 1
    assert found.rate_high[0] == pytest.approx(wilson(0, 1)[1])


def test_last_bits_of_the_weights_move_no_cell():
    # ten bins of 15 cells of weight 1: mid-ranks (j + .5)/1.5 are whole for j = 1, 4, … and go up
    for seed in range(20):
        cells = cells_of_tenths(15, seed)
        found = compute_reliability(cells.cell, cells.weight, cells.response, cells.weight / 2, cells.n_samples, 10)
        assert found.n_samples.tolist() == [10, 20] * 5


def test_no_cells_give_no_bins():
    nothing = np.zeros(0)
    found = compute_reliability(np.zeros(0, np.int64), nothing, nothing, nothing, np.zeros(0, np.int64), 10)
    assert len(found.mean_score) == len(found.n_samples) == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 30), st.floats(0, 1), st.floats(0, 1)), min_size=1),
    st.integers(1, 12),
    st.integers(0, 5),
)
def test_bins_add_up_are_ordered_and_do_not_depend_on_the_order_of_cells(rows, n_bins, seed):
    # a score that rises with the cell: σ(cell/5)
    n = np.array([r[1] for r in rows])
    cell = np.array([r[0] for r in rows])
    response = np.floor(np.array([r[2] for r in rows]) * n)
    score_sum = n / (1 + np.exp(-cell / 5))
    found = compute_reliability(cell, n * 1.0, response, score_sum, n, n_bins)
    assert len(found.mean_score) <= n_bins
    assert found.n_samples.sum() == n.sum()
    assert np.sum(found.response_rate * found.n_samples) == pytest.approx(response.sum(), abs=1e-6)
    assert np.all(np.diff(found.mean_score) > 0)
    assert np.all((found.rate_low <= found.response_rate + 1e-12) & (found.response_rate <= found.rate_high + 1e-12))
    order = np.random.default_rng(seed).permutation(len(rows))
    again = compute_reliability(cell[order], n[order] * 1.0, response[order], score_sum[order], n[order], n_bins)
    np.testing.assert_allclose(again.response_rate, found.response_rate, atol=1e-12)
    assert again.n_samples.tolist() == found.n_samples.tolist()


def test_lengths_that_differ_are_refused():
    with pytest.raises(IndexError, match="out of bounds"):
        compute_reliability(np.arange(3), np.ones(2), np.ones(3), np.ones(3), np.ones(3, np.int64), 2)
