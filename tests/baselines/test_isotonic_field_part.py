"""Isotonic + offset as functions that a network is trained on: the same predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.isotonic_field_part import build_isotonic_functions, fit_isotonic_field_part
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.functions import interpolate
from tests import oracle
from tests.cells.small_world import cells_by_hand, list_by_value, some_cells


def test_functions_by_hand():
    # One value, cells -32 and 31 with mean logits ±31.5/32 = ±.984375 and rates 1/4 and 3/4: log-odds ∓log 3. The
    # curve expects 1 + 3 of 4 responses, so the level is 0. Between the two: a line in log-odds; beyond: flat
    functions = build_isotonic_functions(fit_isotonic_offset(cells_by_hand([(1, -32, 4, 1), (1, 31, 4, 3)], 2)))
    np.testing.assert_allclose(functions.bin_bounds_RJ, [[-0.984375, 0.984375]])
    np.testing.assert_allclose(functions.knots_RJ, [[-np.log(3), np.log(3)]], atol=1e-9)
    logit = np.array([-9.0, -0.984375, 0.0, 0.4921875, 0.984375, 9.0])
    expected = np.log(3) * np.array([-1, -1, 0, 0.5, 1, 1])
    for value in (0, 1):
        np.testing.assert_allclose(interpolate(functions, np.full(6, value), logit), expected, atol=1e-9)


def test_a_block_is_flat_and_levels_lift_it():
    # cells 0 and 1 (rates 3/4, 1/4, pooled to 1/2) and cell 64 (rate 9/10); id 2 responds more than id 1
    cells = cells_by_hand([(1, 0, 40, 30), (1, 1, 40, 4), (2, 1, 40, 26), (2, 64, 100, 90)], 4)
    fit = fit_isotonic_offset(cells)
    functions = build_isotonic_functions(fit)
    np.testing.assert_allclose(functions.bin_bounds_RJ[0], [0.5 / 32, 1.5 / 32, 64.5 / 32])
    # ids 0 (unseen) and 3 (no cells) have the curve, raised by the mean of the levels, as others are by their own
    assert fit.level_V[0] == fit.level_V[3] == pytest.approx(0, abs=0.02)
    np.testing.assert_allclose(functions.knots_RJ, [[0, 0, np.log(9)]], atol=1e-9)
    assert fit.level_V[2] > 0.1 > -0.1 > fit.level_V[1]
    for value, level in enumerate(fit.level_V):
        found = interpolate(functions, np.full(3, value), functions.bin_bounds_RJ[0])
        np.testing.assert_allclose(found, level + np.array([0, 0, np.log(9)]), atol=1e-9)


def test_the_field_part_is_the_oracles_at_every_cell():
    # four values that share 25 cells, mean logits in the middle of them; no block is of one class
    rng = np.random.default_rng(3)
    rows = [
        (z, 4 * j - 80, 60, rng.binomial(60, 1 / (1 + np.exp(1 - 0.15 * j - z / 2))))
        for z in (1, 2, 3, 4)
        for j in range(25)
    ]
    cells = cells_by_hand(rows, 5)
    fit = fit_isotonic_field_part(cells)
    counts = [sum(y for _, cell, _, y in rows if cell == 4 * j - 80) for j in range(25)]
    curve_J = [oracle.log_odds(rate) for rate in oracle.isotonic([y / 240 for y in counts], [240] * 25)]
    curve = np.array([curve_J[(cell + 80) // 4] for cell in cells.cell])
    by_value = list_by_value(cells, curve, cells.weight, cells.response)
    (level_V, _), taus, *_ = oracle.value_effects(by_value, slope=False)
    found = interpolate(fit.functions, cells.field_value_id, cells.logit)
    np.testing.assert_allclose(found, curve + level_V[cells.field_value_id], atol=1e-3)
    np.testing.assert_allclose(fit.level_V, level_V, atol=1e-3)
    assert fit.diagnostics["tau_level"] == pytest.approx(taus[0], rel=5e-3)
    assert fit.mean_logit == pytest.approx(oracle.log_odds(sum(counts) / 6000))
    assert fit.diagnostics["n_cells"] == 100
    assert fit.chosen == "robust"


@settings(max_examples=40, deadline=None)
@given(some_cells())
def test_functions_never_fall_are_finite_and_are_the_methods_predictions_at_the_cells(cells):
    fit = fit_isotonic_offset(cells)
    functions = build_isotonic_functions(fit)
    line = np.linspace(-9, 9, 300)
    for value in range(4):
        logit = interpolate(functions, np.full(300, value), line)
        assert np.all(np.isfinite(logit))
        assert np.all(np.diff(logit) >= -1e-12)
        ends = functions.knots_RJ[0, [0, -1]] + fit.level_V[value]
        np.testing.assert_allclose(logit[[0, -1]], ends)  # flat beyond the ends, which lie within ±6.3
    assert np.all(np.diff(functions.bin_bounds_RJ, axis=1) > 0)
    at_cells = interpolate(functions, cells.field_value_id, cells.logit)
    predicted = fit.predict(cells.logit, cells.field_value_id)
    np.testing.assert_allclose(1 / (1 + np.exp(-at_cells)), predicted, rtol=1e-7, atol=1.1e-7)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_in_one_cell_is_one_flat_bin(label):
    fit = fit_isotonic_field_part(cells_by_hand([(1, 7, 20, 20 * label)], 2))
    assert fit.functions.bin_bounds_RJ.shape == (1, 2)
    np.testing.assert_allclose(np.diff(fit.functions.bin_bounds_RJ), 1 / 32)
    logit = interpolate(fit.functions, np.array([0, 1, 1]), np.array([-9.0, 0.25, 9.0]))
    assert np.all(np.isfinite(logit))
    assert np.all(logit > 2) if label else np.all(logit < -2)


def test_nothing_to_fit_on():
    none = cells_by_hand([(1, 0, 4, 1)], 2).select(np.array([False]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit_isotonic_field_part(none)
