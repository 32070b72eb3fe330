from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.floors import FloorsError
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows


def make_world(n_rows=20_000, effect=1.0):
    fit_rows, test_rows = draw_rows(n_rows, 20, seed=21, effect=effect)
    return cells_of_rows(*fit_rows[:3], 21), cells_of_rows(*test_rows[:3], 21)


def test_the_floor_by_hand_is_that_of_the_normal_approximation():
    # two values of 10,000 samples at rates .8 and .2, one cell each, so the reference is (nearly) the rate itself:
    # sqrt(2/π)·sqrt(n·p·(1 - p))/(n·p) = .7979·40/8000 = .003989 and .7979·40/2000 = .015958; mean .0099736
    cells = cells_by_hand([(1, 0, 10_000, 8000), (2, 0, 10_000, 2000)], 3)
    levels = compute_reference_levels(fit_isotonic_offset(cells), cells, cells, draws=2, seed=1)
    assert levels.field_rce_noise_floor == pytest.approx(0.0099736, rel=5e-3)
    # one cell per value is one tercile
    assert levels.field_rce_terciles_noise_floor == pytest.approx(levels.field_rce_noise_floor)


def test_attainable_is_what_a_simulation_in_plain_numpy_says():
    fit_cells, test_cells = make_world()
    reference = fit_isotonic_offset(fit_cells)
    levels = compute_reference_levels(reference, fit_cells, test_cells, draws=40, seed=1)
    truth_fit = reference.predict(fit_cells.logit, fit_cells.field_value_id)
    truth_test = reference.predict(test_cells.logit, test_cells.field_value_id)
    rng = np.random.default_rng(99)
    draws = []
    for _ in range(40):
        redrawn = rng.binomial(fit_cells.n_samples, truth_fit).astype(float)
        predicted = reference.refit_levels(replace(fit_cells, response=redrawn)).predict(
            test_cells.logit, test_cells.field_value_id
        )
        labels = rng.binomial(test_cells.n_samples, truth_test)
        error = total = 0.0
        for z in range(1, 21):
            own = test_cells.field_value_id == z
            n, y = test_cells.n_samples[own].sum(), labels[own].sum()
            if y > 0:
                total += n
                error += n * abs(np.sum(test_cells.n_samples[own] * predicted[own]) / y - 1)
        draws.append(error / total)
    spread = np.std(draws) * np.sqrt(2 / 40)
    assert levels.field_rce_attainable == pytest.approx(np.mean(draws), abs=4 * spread)


def test_fitting_costs_something_and_less_with_more_rows():
    fit_cells, test_cells = make_world()
    few = compute_reference_levels(fit_isotonic_offset(fit_cells), fit_cells, test_cells, draws=10, seed=1)
    assert few.field_rce_noise_floor < few.field_rce_attainable < 3 * few.field_rce_noise_floor
    assert few.field_rce_terciles_noise_floor > few.field_rce_noise_floor  # thinner rows, more noise
    assert few.field_rce_terciles_attainable > few.field_rce_terciles_noise_floor
    more = replace(
        fit_cells,
        **{name: getattr(fit_cells, name) * 30 for name in ("weight", "response", "n_samples", "n_responses")},
    )
    many = compute_reference_levels(fit_isotonic_offset(more), more, test_cells, draws=10, seed=1)
    assert many.field_rce_attainable < few.field_rce_attainable


def test_same_seed_same_figures():
    fit_cells, test_cells = make_world(3000)
    reference = fit_isotonic_offset(fit_cells)
    first, again, other = (
        compute_reference_levels(reference, fit_cells, test_cells, draws=3, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.field_rce_attainable != other.field_rce_attainable
    assert first.field_rce_noise_floor == other.field_rce_noise_floor
    assert REFERENCE_SCORE == "isotonic_offset"


def test_no_draws():
    fit_cells, test_cells = make_world(500)
    with pytest.raises(FloorsError, match=r"draws = 0: .* at least 1"):
        compute_reference_levels(fit_isotonic_offset(fit_cells), fit_cells, test_cells, draws=0, seed=1)
