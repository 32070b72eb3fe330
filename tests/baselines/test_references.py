from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from adacalib.baselines.references import compute_reference_levels, fit_reference
from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.floors import FloorsError
from adacalib.cells.functions import interpolate
from adacalib.cells.robust import fit_robust
from adacalib.cells.terciles import assign_terciles
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows


def make_world(n_rows=20_000, effect=1.0):
    fit_rows, test_rows = draw_rows(n_rows, 20, seed=21, effect=effect)
    return cells_of_rows(*fit_rows[:3], 21), cells_of_rows(*test_rows[:3], 21)


def test_the_floor_by_hand_is_that_of_the_normal_approximation():
    # two values of 10,000 samples at rates .8 and .2, one cell each, so the reference is (nearly) the rate itself:
    # sqrt(2/π)·sqrt(n·p·(1 - p))/(n·p) = .7979·40/8000 = .003989 and .7979·40/2000 = .015958; mean .0099736
    cells = cells_by_hand([(1, 0, 10_000, 8000), (2, 0, 10_000, 2000)], 3)
    levels = compute_reference_levels(cells, cells, draws=2, seed=1)
    assert levels.field_rce_noise_floor == pytest.approx(0.0099736, rel=5e-3)
    # one cell per value is one tercile
    assert levels.field_rce_terciles_noise_floor == pytest.approx(levels.field_rce_noise_floor)


def draw_shaped_world(n_rows, seed):
    """Cells of 12 values whose functions differ in level, slope and bend, and the truth of each cell."""
    rng = np.random.default_rng(seed)
    values = np.random.default_rng(5).normal(0, (0.5, 0.4, 0.5), (13, 3))
    ids, logit = rng.integers(1, 13, n_rows), rng.normal(-2.5, 1.0, n_rows)
    u = logit + 2.5
    level, slope, bend = values[ids].T
    truth = expit(logit + level + slope * u + bend * (np.clip(u, -2.5, 2.5) ** 2 - 1) / np.sqrt(2))
    cells = cells_of_rows(ids, logit, (rng.random(n_rows) < truth).astype(float), 13)
    cell = np.floor(logit * 32)
    key = ids * 100_000 + (cell - cell.min()).astype(np.int64)
    return cells, np.bincount(np.unique(key, return_inverse=True)[1], weights=truth) / cells.n_samples


def simulate_robust_mode(fit_cells, fit_truth, test_cells, test_truth, n_draws):
    """Field-RCE by terciles of robust mode, fitted and judged on labels drawn from the truth, in plain NumPy."""
    rng, rows = np.random.default_rng(8), test_cells.field_value_id * 3 + assign_terciles(test_cells)
    found = []
    for _ in range(n_draws):
        redrawn = replace(fit_cells, response=rng.binomial(fit_cells.n_samples, fit_truth).astype(float))
        functions = fit_robust(redrawn, compute_bin_bounds(redrawn, 20)).functions
        score = expit(interpolate(functions, test_cells.field_value_id, test_cells.logit))
        labels = rng.binomial(test_cells.n_samples, test_truth)
        n, y, s = (np.bincount(rows, weights=w) for w in (test_cells.n_samples, labels, test_cells.n_samples * score))
        used = y > 0
        found.append(np.sum(n[used] * np.abs(s[used] / y[used] - 1)) / n[used].sum())
    return np.mean(found)


def test_attainable_terciles_know_what_slope_and_shape_cost():
    fit_cells, fit_truth = draw_shaped_world(60_000, 1)
    test_cells, test_truth = draw_shaped_world(20_000, 2)
    levels = compute_reference_levels(fit_cells, test_cells, draws=20, seed=1)
    simulated = simulate_robust_mode(fit_cells, fit_truth, test_cells, test_truth, n_draws=20)
    # with levels alone the cost would be a third of it
    assert levels.field_rce_terciles_attainable == pytest.approx(simulated, rel=0.08)


def test_the_reference_follows_slope_and_shape_and_refits_its_effects_alone():
    fit_cells, fit_truth = draw_shaped_world(200_000, 1)
    reference = fit_reference(fit_cells)
    error = np.sum(fit_cells.n_samples * np.abs(reference.predict(fit_cells) - fit_truth)) / np.sum(
        fit_cells.n_samples * fit_truth
    )
    assert error < 0.06
    again = reference.refit(fit_cells)
    np.testing.assert_allclose(again.predict(fit_cells), reference.predict(fit_cells), rtol=2e-3)
    assert again.isotonic is reference.isotonic
    assert again.effects.tau_shape == reference.effects.tau_shape


def test_fitting_costs_something_and_less_with_more_rows():
    fit_cells, test_cells = make_world()
    few = compute_reference_levels(fit_cells, test_cells, draws=10, seed=1)
    assert few.field_rce_noise_floor < few.field_rce_attainable < 3 * few.field_rce_noise_floor
    assert few.field_rce_terciles_noise_floor > few.field_rce_noise_floor  # thinner rows, more noise
    assert few.field_rce_terciles_attainable > few.field_rce_terciles_noise_floor
    more = replace(
        fit_cells,
        **{name: getattr(fit_cells, name) * 30 for name in ("weight", "response", "n_samples", "n_responses")},
    )
    many = compute_reference_levels(more, test_cells, draws=10, seed=1)
    assert many.field_rce_attainable < few.field_rce_attainable


def test_same_seed_same_figures():
    fit_cells, test_cells = make_world(3000)
    first, again, other = (compute_reference_levels(fit_cells, test_cells, draws=3, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.field_rce_attainable != other.field_rce_attainable
    assert first.field_rce_noise_floor == other.field_rce_noise_floor


def test_no_draws():
    fit_cells, test_cells = make_world(500)
    with pytest.raises(FloorsError, match=r"draws = 0: .* at least 1"):
        compute_reference_levels(fit_cells, test_cells, draws=0, seed=1)
