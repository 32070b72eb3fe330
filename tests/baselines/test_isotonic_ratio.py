from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from adacalib.baselines.isotonic import fit_isotonic
from adacalib.baselines.isotonic_ratio import fit_isotonic_ratio
from adacalib.cells.logit_cells import pool_values
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells


def test_ratios_by_hand():
    # rates of the two scores: 5/20 and 15/20. Value 1 expects 2.5 + 7.5 = 10 and has 4 + 10 = 14: ratio 15/11;
    # value 2 has 6: ratio 7/11
    fitted = fit_isotonic_ratio(cells_by_hand([(1, 0, 10, 4), (1, 32, 10, 10), (2, 0, 10, 1), (2, 32, 10, 5)], 4))
    np.testing.assert_allclose(fitted.ratio_V, [1, 15 / 11, 7 / 11, 1])
    low, high = 0.5 / 32, 32.5 / 32
    # .75·15/11 = 1.02 is clipped; id 0, an id without cells and unknown ids keep the isotonic rate
    at, ids = np.array([low, high, low, high, low, high, low, high]), np.array([1, 1, 2, 2, 0, 3, 99, -1])
    expected = [0.25 * 15 / 11, 1 - 1e-7, 0.25 * 7 / 11, 0.75 * 7 / 11, 0.25, 0.75, 0.25, 0.75]
    np.testing.assert_allclose(fitted.predict(at, ids), expected)


def test_a_value_without_responses():
    # rate .5 of all; value 1 expects 100 and has none: ratio 1/101
    fitted = fit_isotonic_ratio(cells_by_hand([(1, 0, 200, 0), (2, 0, 200, 200)], 3))
    np.testing.assert_allclose(fitted.predict(np.zeros(1), np.array([1])), 0.5 / 101)


def test_cells_of_id_0_shape_the_function_only():
    # (0 + 30)/(100 + 100) = .15; value 1 expects 15 and has 30: 31/16; unseen values keep ratio 1 whatever their cells
    fitted = fit_isotonic_ratio(cells_by_hand([(0, 0, 100, 0), (1, 0, 100, 30)], 2))
    np.testing.assert_allclose(fitted.ratio_V, [1, 31 / 16])
    np.testing.assert_allclose(fitted.predict(np.zeros(2), np.array([0, 1])), [0.15, 0.15 * 31 / 16])


def test_ratios_are_the_oracles():
    (z, s, y, _), _ = draw_rows(3000, 6, seed=4)
    s = np.round(4 * s) / 4  # few scores, each in a cell of its own: the oracle's isotonic regression is slow
    cells = cells_of_rows(z, s, y, 7)
    pooled = pool_values(cells)
    rates = oracle.isotonic((pooled.response / pooled.weight).tolist(), pooled.weight.tolist())
    knots = dict(zip(pooled.cell.tolist(), rates, strict=True))
    fitted = fit_isotonic_ratio(cells)
    for value in range(1, 7):
        rows = z == value
        expected = sum(knots[cell] for cell in np.floor(32 * s[rows]).astype(int).tolist())
        np.testing.assert_allclose(fitted.ratio_V[value], (y[rows].sum() + 1) / (expected + 1), rtol=1e-9)
    assert np.ptp(fitted.ratio_V[1:]) > 0.5


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_ratio_is_what_a_value_lacks(cells):
    fitted = fit_isotonic_ratio(cells)
    rate = fit_isotonic(cells).rate(cells.logit)
    expected_V = cells.sum_by_value(cells.weight * rate)
    np.testing.assert_allclose(fitted.ratio_V * (expected_V + 1), cells.sum_by_value(cells.response) + 1, rtol=1e-9)
    # the sum over all values is that of the responses before the ratios, since isotonic regression keeps it
    assert np.isclose(expected_V.sum(), cells.response.sum())
    # within a value the order of the scores stays
    line = np.linspace(-20, 20, 200)
    for value in range(4):
        assert np.all(np.diff(fitted.predict(line, np.full(200, value))) >= -1e-12)
