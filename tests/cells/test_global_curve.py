from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.global_curve import GlobalCurve, find_equal_frequency_bins, fit_global_curve
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, cells_of_tenths, draw_rows, some_cells


def log_odds(p):
    return np.log(p / (1 - p))


def test_curve_by_hand():
    # three cells in three bins, n = 10 each, Σy = 1, 3, 2: ȳ = .2, rates 1.1/10.5, 3.1/10.5, 2.1/10.5;
    # the last two pool to 2.6/10.5 at the mean of their logits. One end slope: the only one there is.
    cells = cells_by_hand([(1, -32, 10, 1), (1, 0, 10, 3), (2, 32, 10, 2)], 3)
    curve = fit_global_curve(cells)
    np.testing.assert_allclose(curve.logit_knots, [-1 + 0.5 / 32, 0.5 + 0.5 / 32])
    np.testing.assert_allclose(curve.calibrated_knots, [log_odds(1.1 / 10.5), log_odds(2.6 / 10.5)])
    slope = (log_odds(2.6 / 10.5) - log_odds(1.1 / 10.5)) / 1.5
    assert curve.slope_lower == curve.slope_upper == pytest.approx(slope)


def test_evaluate_by_hand():
    curve = GlobalCurve(np.array([0, 2.0]), np.array([1, 2.0]), slope_lower=0.1, slope_upper=2.0)
    np.testing.assert_allclose(curve.evaluate(np.array([[-1, 0, 1], [2, 3, 12.0]])), [[0.9, 1, 1.5], [2, 4, 22]])


def test_end_slopes_use_a_tenth_of_the_blocks_and_are_clipped():
    # 100 bins of one cell each. Rates rise slowly below and by whole logits above, so the slopes hit both limits.
    true_logit = np.concatenate([np.linspace(-2.01, -2, 50), np.linspace(-2, 4, 50)])
    n = 10_000_000
    rows = [(1, j, n, round(n / (1 + np.exp(-t)))) for j, t in enumerate(true_logit)]
    curve = fit_global_curve(cells_by_hand(rows, 2))
    assert (curve.slope_lower, curve.slope_upper) == (0.1, 2.0)
    # with a constant slope of .64 per unit of logit the tenth has it too
    rows = [(1, j, n, round(n / (1 + np.exp(-0.02 * j)))) for j in range(100)]
    curve = fit_global_curve(cells_by_hand(rows, 2))
    assert curve.slope_lower == pytest.approx(0.64, rel=1e-3)
    assert curve.slope_upper == pytest.approx(0.64, rel=1e-3)


def test_the_outer_tenth_is_ten_steps_of_a_hundred_blocks():
    # log-odds rise by .02 per cell over the first and last 5 cells, by .01 between: over ten steps
    # (5·.02 + 5·.01)/(10/32) = .48
    steps = np.concatenate([[0], np.full(5, 0.02), np.full(89, 0.01), np.full(5, 0.02)])
    n = 1_000_000_000
    rows = [(1, j, n, round(n / (1 + np.exp(-t)))) for j, t in enumerate(np.cumsum(steps))]
    curve = fit_global_curve(cells_by_hand(rows, 2))
    assert len(curve.logit_knots) == 100
    assert curve.slope_lower == pytest.approx(0.48, rel=1e-4)
    assert curve.slope_upper == pytest.approx(0.48, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(some_cells(max_cells=60))
def test_curve_is_the_oracles(cells):
    share = cells.response.sum() / cells.weight.sum()
    if 0 < share < 1:
        rows = zip(cells.cell.tolist(), cells.weight, cells.response, cells.logit, strict=True)
        logit_knots, calibrated_knots = oracle.global_curve(list(rows))
        line = np.array(logit_knots)
        # compared at the oracle's knots: blocks of equal rate may be cut otherwise, the function is the same
        np.testing.assert_allclose(fit_global_curve(cells).evaluate(line), calibrated_knots, rtol=1e-7, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_curve_is_finite_and_never_decreases(cells):
    line = np.linspace(-20, 20, 500)
    calibrated = fit_global_curve(cells).evaluate(line)
    assert np.all(np.isfinite(calibrated))
    assert np.all(np.diff(calibrated) >= 0)


def test_curve_recovers_the_truth():
    (z, s, y, _), _ = draw_rows(300_000, 3, seed=5, effect=0.0)
    calibrated = fit_global_curve(cells_of_rows(z, s, y, 4)).evaluate(np.linspace(-4, 0, 9))
    truth = -0.3 + 0.8 * np.linspace(-4, 0, 9) + 0.1 * np.sin(2 * np.linspace(-4, 0, 9))
    np.testing.assert_allclose(calibrated, truth, atol=0.1)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_stays_finite(label):
    # one sample: ȳ = (y + .5)/2, rate (y + .5ȳ)/1.5; .25·.5/1.5 = 1/12 without a response
    one = fit_global_curve(cells_of_rows([1], [0.3], [label], 2))
    assert one.calibrated_knots == pytest.approx(log_odds(11 / 12 if label else 1 / 12))
    assert (one.slope_lower, one.slope_upper) == (1.0, 1.0)
    many = fit_global_curve(cells_of_rows([1] * 50, np.linspace(-3, 3, 50), [label] * 50, 2))
    assert np.ptp(many.calibrated_knots) < 1e-9
    assert many.slope_lower == 0.1
    assert np.all(np.isfinite(many.evaluate(np.array([-16.0, 0, 16]))))


def test_falling_rates_give_one_block():
    curve = fit_global_curve(cells_by_hand([(1, -32, 10, 9), (1, 0, 10, 5), (1, 32, 10, 1)], 2))
    assert len(curve.logit_knots) == 1
    assert curve.slope_upper == 0.1


def test_last_bits_of_the_weights_move_no_cell():
    # ten bins of 15 cells of weight 1: mid-ranks (j + .5)/1.5, which is whole for j = 1, 4, …; the tie goes up
    expected = [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]
    for seed in range(20):
        np.testing.assert_array_equal(find_equal_frequency_bins(cells_of_tenths(15, seed), 10), expected)
    # and so in the curve's 100 bins of 150 cells
    curves = [fit_global_curve(cells_of_tenths(150, seed)) for seed in range(20)]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve.logit_knots, curves[0].logit_knots, rtol=1e-12)
        np.testing.assert_allclose(curve.calibrated_knots, curves[0].calibrated_knots, rtol=1e-12)


def test_no_cells():
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_global_curve(cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False])))
