from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.cells.bin_bounds import NoCellsError
from tests import oracle
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, list_by_value, some_cells


def test_offset_by_hand():
    # one cell, two values: isotonic rate .5, so levels start from log-odds 0 and are mirror images
    fit = fit_isotonic_offset(cells_by_hand([(1, 0, 100, 80), (2, 0, 100, 20)], 3))
    assert fit.level_V[0] == pytest.approx(0, abs=1e-9)
    assert fit.level_V[1] == pytest.approx(-fit.level_V[2])
    assert 1.2 < fit.level_V[1] < np.log(4)
    # 80 - 100·σ(a) = a/τ²
    a = fit.level_V[1]
    assert 80 - 100 / (1 + np.exp(-a)) == pytest.approx(a / fit.tau**2, abs=1e-6)
    predicted = fit.predict(np.zeros(4), np.array([0, 1, 2, 99]))
    np.testing.assert_allclose(predicted, [0.5, 1 / (1 + np.exp(-a)), 1 / (1 + np.exp(a)), 0.5])


def test_offset_is_the_oracles():
    (z, s, y, _), _ = draw_rows(5000, 8, seed=9)
    cells = cells_of_rows(z, s, y, 9)
    fit = fit_isotonic_offset(cells)
    rate = np.clip(fit.isotonic.rate(cells.logit), fit.isotonic.lowest_rate, fit.isotonic.highest_rate)
    by_value = list_by_value(cells, np.log(rate / (1 - rate)), cells.weight, cells.response)
    (expected, _), taus, _, _, mean_level = oracle.value_effects(by_value, slope=False)
    np.testing.assert_allclose(fit.level_V, expected, atol=1e-3)
    assert fit.tau == pytest.approx(taus[0], rel=5e-3)
    assert fit.level_V[0] == pytest.approx(mean_level, abs=1e-3)


def test_unseen_and_unknown_ids_have_the_mean_of_the_levels():
    # one frequent value at rate 1/2 is the isotonic function; 200 rare ones at 3/4, 20 samples each, lie log 3 above it
    rows = [(1, 0, 10**6, 500_000), *((z, 0, 20, 15) for z in range(2, 202))]
    fit = fit_isotonic_offset(cells_by_hand(rows, 203))
    assert fit.level_V[0] == fit.level_V[202] == pytest.approx(np.log(3), abs=0.05)
    unseen = fit.predict(np.zeros(4), np.array([0, 202, 203, -1]))
    np.testing.assert_allclose(unseen, 0.75, atol=0.01)
    assert fit.predict(np.zeros(1), np.array([1]))[0] == pytest.approx(0.5, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_predictions_are_probabilities(cells):
    fit = fit_isotonic_offset(cells)
    ids, logit = np.repeat(np.arange(5), 50), np.tile(np.linspace(-20, 20, 50), 5)
    predicted = fit.predict(logit, ids)
    assert np.all((predicted >= 1e-7) & (predicted <= 1 - 1e-7))
    assert np.all(np.diff(predicted.reshape(5, 50), axis=1) >= -1e-12)


@pytest.mark.parametrize("labels", [[0] * 4, [1] * 4, [0, 0, 0, 1]])
def test_end_blocks_do_not_blow_up(labels):
    fit = fit_isotonic_offset(cells_of_rows([1, 1, 2, 2], [-3, -1, 1, 3], labels, 3))
    assert np.all(np.isfinite(fit.level_V))
    assert np.all(np.abs(fit.level_V) < 5)


def test_no_cells():
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_isotonic_offset(cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False])))
