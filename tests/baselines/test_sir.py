from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.sir import SmoothIsotonic, fit_sir
from adacalib.cells.bin_bounds import BoundsError
from tests import oracle
from tests.baselines.test_histogram_binning import oracle_bins
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def score(cell):
    """σ at the middle of a cell, where cells by hand have their mean logit."""
    return 1 / (1 + np.exp(-(cell + 0.5) / 32))


def test_merging_steps_back():
    # .3, .4, .05: only the last two are in the wrong order, but their pool (.225) is below .3: all three become .25
    fitted = fit_sir(cells_by_hand([(1, -32, 20, 6), (1, 0, 20, 8), (1, 32, 20, 1)], 2))
    np.testing.assert_allclose(fitted.rate_knots, [0.25])
    np.testing.assert_allclose(fitted.score_knots, [(score(-32) + score(0) + score(32)) / 3])
    np.testing.assert_allclose(fitted.predict(np.array([-9.0, 0, 9]), np.zeros(3, np.int64)), 0.25)


def test_merging_counts_samples():
    # 9 of 10 and 30 of 90 pool to 39/100, not to (.9 + .333)/2; the knot is at the mean of all 100 scores
    fitted = fit_sir(cells_by_hand([(1, -64, 50, 1), (2, 0, 10, 9), (2, 32, 90, 30)], 3), n_bins=20)
    np.testing.assert_allclose(fitted.rate_knots, [0.02, 0.39])
    np.testing.assert_allclose(fitted.score_knots, [score(-64), 0.1 * score(0) + 0.9 * score(32)])


def test_lines_are_straight_in_the_score():
    # at the score half-way between the knots' scores stands the mean of the rates; beyond the knots nothing moves
    fitted = SmoothIsotonic(np.array([0.2, 0.6]), np.array([0.1, 0.5]))
    at = np.log(np.array([0.01, 0.2, 0.4, 0.5, 0.6, 0.99]))
    at -= np.log1p(-np.exp(at))
    np.testing.assert_allclose(fitted.predict(at, np.zeros(6, np.int64)), [0.1, 0.1, 0.3, 0.4, 0.5, 0.5])


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_sir_is_the_oracles(cells):
    fitted = fit_sir(cells, n_bins=7)
    firsts, rates = zip(*oracle_bins(cells, 7), strict=True)
    weight, score_sum = np.zeros(len(firsts)), np.zeros(len(firsts))
    for cell, n in zip(cells.cell, cells.weight, strict=True):
        k = max(i for i, first in enumerate(firsts) if cell >= first)
        weight[k] += n
        score_sum[k] += n * score(cell)
    monotone = np.array(oracle.isotonic(list(rates), weight.tolist()))
    # pools of equal rate may be cut otherwise by the library: compare the function at the middle of each pool
    for rate in np.unique(np.round(monotone, 12)):
        pool = np.abs(monotone - rate) < 1e-9
        mean_score = score_sum[pool].sum() / weight[pool].sum()
        logit = np.log(mean_score / (1 - mean_score))
        predicted = fitted.predict(np.array([logit]), np.zeros(1, np.int64))
        np.testing.assert_allclose(predicted, np.clip(rate, 1e-7, 1 - 1e-7), atol=1e-9)
    assert np.all(np.diff(fitted.score_knots) > 0)
    assert np.all(np.diff(fitted.rate_knots) >= -1e-12)


def test_sir_recovers_the_truth():
    (z, s, y, _), _ = draw_rows(300_000, 3, seed=5, effect=0.0)
    line = np.linspace(-4, 0, 9)
    predicted = fit_sir(cells_of_rows(z, s, y, 4)).predict(line, np.zeros(9, np.int64))
    truth = 1 / (1 + np.exp(0.3 - 0.8 * line - 0.1 * np.sin(2 * line)))
    np.testing.assert_allclose(predicted, truth, atol=0.02)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(label):
    fitted = fit_sir(cells_of_rows([1] * 4, [-1, 0, 1, 2], [label] * 4, 2))
    predicted = fitted.predict(np.array([-5.0, 0.5, 5]), np.zeros(3, np.int64))
    np.testing.assert_allclose(predicted, 1 - 1e-7 if label else 1e-7, rtol=1e-9)


def test_no_bins():
    with pytest.raises(BoundsError, match="n_bins is -1"):
        fit_sir(cells_by_hand([(1, 0, 1, 0)], 2), n_bins=-1)
