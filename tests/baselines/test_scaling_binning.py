from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from adacalib.baselines.scaling_binning import fit_scaling_binning
from adacalib.cells.bin_bounds import BoundsError
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def oracle_scaling_binning(logit, label, n_bins):
    """Prediction per row: a line fitted by a general optimiser, outputs sorted, rows of one cell kept together."""
    n_positive = label.sum()
    target = np.where(label == 1, (n_positive + 1) / (n_positive + 2), 1 / (len(label) - n_positive + 2))
    cell = np.floor(32 * logit)
    middle = np.array([logit[cell == c].mean() for c in cell])

    def loss(line):
        eta = line[0] * middle + line[1]
        return np.mean(np.logaddexp(0, eta) - target * eta)

    line = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-10}).x
    output = 1 / (1 + np.exp(-(line[0] * middle + line[1])))
    mid_rank = np.array([(output < p).sum() + (output == p).sum() / 2 for p in output]) / len(output)
    bin_index = np.floor(n_bins * mid_rank)
    return np.array([output[bin_index == k].mean() for k in bin_index])


def test_bins_by_hand():
    # 20 and 80 of 100 responses, smoothed targets .2058824 and .7941176 (a response counts 101/102, its absence
    # 1/102): a line goes through two points. One bin: their mean .5. Two bins: themselves, bound at 64/32.
    cells = cells_by_hand([(1, 0, 100, 20), (2, 64, 100, 80)], 3)
    any_value = np.zeros(3, np.int64)
    at = np.array([0.0, np.nextafter(2.0, 0), 2.0])
    np.testing.assert_allclose(fit_scaling_binning(cells, n_bins=1).predict(at, any_value), 0.5)
    two = fit_scaling_binning(cells, n_bins=2)
    np.testing.assert_allclose(two.predict(at, any_value), [0.2058824, 0.2058824, 0.7941176], rtol=1e-6)


def test_labels_enter_the_line_only():
    # responses 10, 90, 50 of 100: a histogram would fall from the second bin to the third, the line's means rise
    fitted = fit_scaling_binning(cells_by_hand([(1, 0, 100, 10), (1, 32, 100, 90), (1, 64, 100, 50)], 2), n_bins=3)
    low, middle, high = fitted.bin_probabilities
    assert low < middle < high
    assert middle < 0.6


def test_default_is_20_bins():
    (z, s, y, _), _ = draw_rows(5000, 3, seed=2)
    assert len(fit_scaling_binning(cells_of_rows(z, s, y, 4)).bin_probabilities) == 20


@pytest.mark.parametrize(("sign", "n_bins"), [(1, 7), (1, 20), (-1, 7)])
def test_scaling_binning_is_the_oracles(sign, n_bins):
    (z, s, y, _), _ = draw_rows(701, 3, seed=6)
    predicted = fit_scaling_binning(cells_of_rows(z, sign * s, y, 4), n_bins).predict(sign * s, z)
    np.testing.assert_allclose(predicted, oracle_scaling_binning(sign * s, y, n_bins), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_binning_keeps_the_mean_and_the_order(cells):
    fitted = fit_scaling_binning(cells, 5)
    step = np.diff(fitted.bin_probabilities)
    assert np.all(step >= -1e-12) or np.all(step <= 1e-12)
    predicted = fitted.predict(cells.logit, cells.field_value_id)
    n, positive = cells.weight.sum(), cells.response.sum()
    smoothed = positive * (positive + 1) / (positive + 2) + (n - positive) / (n - positive + 2)
    assert np.sum(cells.weight * predicted) == pytest.approx(smoothed, rel=1e-6)


def test_no_bins():
    with pytest.raises(BoundsError, match="n_bins is 0"):
        fit_scaling_binning(cells_by_hand([(1, 0, 1, 0)], 2), n_bins=0)
