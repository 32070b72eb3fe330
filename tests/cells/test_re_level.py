from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.re_level import TAU_FACTOR, fit_intercept, fit_re_level
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells


def test_intercept_by_hand():
    # all at log-odds 1, 30 of 40 respond: α = log 3 - 1
    cells = cells_by_hand([(1, 0, 20, 20), (2, 0, 20, 10)], 3)
    assert fit_intercept(cells, np.ones(2)) == pytest.approx(np.log(3) - 1)
    # one class: half a response of 3 samples, .5·3/4 = .375 expected, p = .125 = 1/8
    one_class = cells_by_hand([(1, 0, 3, 0)], 2)
    assert fit_intercept(one_class, np.zeros(1)) == pytest.approx(-np.log(7))


@settings(max_examples=40, deadline=None)
@given(some_cells(), st.floats(-25, 25))
def test_intercept_meets_the_responses(cells, offset):
    logit = cells.logit + offset
    expected = np.sum(cells.weight / (1 + np.exp(-logit - fit_intercept(cells, logit))))
    assert abs(expected - cells.response.sum()) <= 0.5 + 1e-6


def test_re_level_is_the_oracles():
    (z, s, y, _), _ = draw_rows(4000, 10, seed=21)
    cells = cells_of_rows(z, s, y, 12)  # id 11 has no cells
    level_V = np.linspace(-0.5, 0.5, 12) * (np.arange(12) > 0) * (np.arange(12) < 11)
    shift_V = fit_re_level(cells, level_V)
    intercept = fit_intercept(cells, cells.logit)
    by_value = list_by_value(cells, cells.logit + intercept, cells.weight, cells.response)
    _, taus, *_ = oracle.value_effects(by_value, slope=False)
    (level_again, _), _, _, _, mean_level = oracle.value_effects(by_value, tau=(TAU_FACTOR * taus[0], 1.0), slope=False)
    np.testing.assert_allclose(shift_V, intercept + level_again - level_V, atol=1e-3)
    assert shift_V[0] == shift_V[11] == pytest.approx(intercept + mean_level, abs=1e-3)


def test_a_level_already_right_is_hardly_moved():
    # a_z is each value's level on the base logit, much evidence: a'_z finds it again, the shift is about 0
    rng = np.random.default_rng(1)
    level_V = np.concatenate([[0], rng.normal(0, 0.5, 40)])
    level_V[1:] -= level_V[1:].mean()
    z, cell = np.repeat(np.arange(1, 41), 10), np.tile(np.arange(-50, 0, 5), 40)
    n = np.full(len(z), 100_000)
    y = np.rint(n / (1 + np.exp(-cell / 32 - level_V[z]))).astype(int)
    cells = cells_by_hand(list(zip(z, cell, n, y, strict=True)), 41)
    shift_V = fit_re_level(replace(cells, logit=cells.cell / 32), level_V)
    np.testing.assert_allclose(shift_V, 0, atol=0.04)
    served = shift_V + level_V
    np.testing.assert_allclose(served[1:] - level_V[1:], shift_V[0], atol=0.05)


def test_unseen_values_get_the_mean_of_the_levels_less_what_they_hold():
    # one frequent value that the network serves well, 500 rare ones that it serves .6 too low, each of 20 samples;
    # the functions of id 0 and of id 502, which has no cells, hold -.2 each: the base logit is without them
    rng = np.random.default_rng(2)
    rows = [(1, 0, 10**6, 500_000), *((z, 0, 20, rng.binomial(20, 1 / (1 + np.exp(-0.6)))) for z in range(2, 502))]
    cells = cells_by_hand(rows, 503)
    level_V = np.zeros(503)
    level_V[[0, 502]] = -0.2
    shift_V = fit_re_level(replace(cells, logit=np.zeros(len(cells))), level_V)
    assert shift_V[0] == shift_V[502]
    assert shift_V[0] + level_V[0] == pytest.approx(0.6, abs=0.06)
    assert abs(shift_V[1]) < 0.01


def test_no_cells():
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_re_level(cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False])), np.zeros(2))
