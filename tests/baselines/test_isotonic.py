from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.isotonic import fit_isotonic
from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.logit_cells import pool_values
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, some_cells

ANY = np.zeros(1, np.int64)


def test_isotonic_by_hand():
    # rates .1, .5, .3 of 10, 10, 30 samples at -1, 0, 1 (+1/64): the last two pool to 14/40 = .35
    isotonic = fit_isotonic(cells_by_hand([(1, -32, 10, 1), (2, 0, 10, 5), (3, 32, 30, 9)], 4))
    at = np.array([-9, -1, -0.5, 0, 0.7, 1, 9]) + 1 / 64
    expected = [0.1, 0.1, 0.225, 0.35, 0.35, 0.35, 0.35]
    np.testing.assert_allclose(isotonic.predict(at, np.zeros(7, np.int64)), expected)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_isotonic_is_the_oracles(cells):
    pooled = pool_values(cells)
    expected = oracle.isotonic((pooled.response / pooled.weight).tolist(), pooled.weight.tolist())
    isotonic = fit_isotonic(cells)
    np.testing.assert_allclose(isotonic.rate(pooled.logit), expected, atol=1e-9)
    line = isotonic.predict(np.linspace(-20, 20, 300), np.zeros(300, np.int64))
    assert np.all(np.diff(line) >= -1e-12)
    assert line.min() >= 1e-7
    assert line.max() <= 1 - 1e-7
    np.testing.assert_allclose(np.sum(pooled.weight * isotonic.rate(pooled.logit)), pooled.response.sum(), rtol=1e-9)


def test_end_rates_by_hand():
    # blocks 0/10, 6/10, 10/10: ȳ = 16/30; lowest .5·(16/30)/10.5, highest 1 - .5·(14/30)/10.5
    isotonic = fit_isotonic(cells_by_hand([(1, -32, 10, 0), (1, 0, 10, 6), (1, 32, 10, 10)], 2))
    assert isotonic.lowest_rate == pytest.approx(0.5 * 16 / 30 / 10.5)
    assert isotonic.highest_rate == pytest.approx(1 - 0.5 * 14 / 30 / 10.5)
    # a lone sample without response below a block of rate .01: not above that block's rate
    assert fit_isotonic(cells_by_hand([(1, -32, 1, 0), (1, 0, 100, 1), (1, 9, 9, 9)], 2)).lowest_rate == 0.01


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(label):
    isotonic = fit_isotonic(cells_of_rows([1] * 4, [-1, 0, 1, 2], [label] * 4, 2))
    assert isotonic.predict(np.array([0.0]), ANY) == pytest.approx(1 - 1e-7 if label else 1e-7, rel=1e-9)
    assert isotonic.lowest_rate == isotonic.highest_rate == pytest.approx(1 - 0.25 / 4.5 if label else 0.25 / 4.5)


def test_no_cells():
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_isotonic(cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False])))
