"""Noise floor and attainable level: by hand, against the binomial formula, and by simulation of a known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.floors import (
    BINOMIAL_LIMIT,
    FloorsError,
    compute_cell_noise_floors,
    compute_fitting_costs,
    compute_noise_floor,
)
from adacalib.cells.grouped_sums import compute_field_rce
from adacalib.cells.logit_cells import Floats, LogitCells, merge_cells
from adacalib.cells.terciles import assign_terciles
from tests import oracle_metrics as oracle


def floor_of(n: Any, p: Any, weight_per_sample: float = 1.0) -> float | None:
    """The floor of rows of n samples of probability p each."""
    n, p, w = np.array(n, np.int64), np.array(p, float), weight_per_sample
    return compute_noise_floor(w * n, w * n * p, w * w * n * p * (1 - p), n)


def simulate_field_rce(n: Any, p: Any, draws: int) -> tuple[float, float]:
    """Mean Field-RCE of the truth over draws of labels, and the standard error of that mean."""
    n, p = np.array(n), np.array(p)
    generator = np.random.default_rng(2)
    results = []
    for _ in range(draws):
        y = generator.binomial(n, p)
        results.append(compute_field_rce(n * 1.0, y * 1.0, n * p, y))
    defined = np.array([result for result in results if result is not None])
    return float(defined.mean()), float(defined.std() / np.sqrt(len(defined)))


def make_cells(seed: int, n_values: int = 6, n_cells: int = 8, n: int = 60, weight: float = 1.0) -> LogitCells:
    """n_cells cells of n samples on average per value but id 0; labels are never looked at."""
    generator = np.random.default_rng(seed)
    value = np.repeat(np.arange(1, n_values), n_cells)
    cell = np.tile(np.arange(n_cells) * 8 - 96, n_values - 1)
    count = generator.integers(n // 2, n + n // 2, len(cell))
    return merge_cells(
        value, cell, weight * count, 0.0 * count, weight * count * (cell + 0.5) / 32, count, 0 * count, n_values
    )


def truth_of(cells: LogitCells) -> Floats:
    """A level per value on the un-calibrated logit."""
    return 1 / (1 + np.exp(-cells.logit - 0.3 * (cells.field_value_id - 3)))


def test_by_hand() -> None:
    # n = 2, p = ½, E = 1: Y = 1 with ½ → 0; Y = 2 with ¼ → |1/2 − 1| = ½; given Y ≥ 1 (¾): ⅛/¾ = 1/6
    assert floor_of([2], [0.5]) == pytest.approx(1 / 6)
    # with a row of n = 1, p = ½, E = ½: Y = 1 with ½ → ½. Σ w·π·c = 2·⅛ + 1·¼ = ½, Σ w·π = 2·¾ + ½ = 2
    assert floor_of([2, 1], [0.5, 0.5]) == pytest.approx(1 / 4)
    # a row that never has a positive does not count, a row that is all positives counts without error
    assert floor_of([2, 1, 9], [0.5, 0.5, 0.0]) == pytest.approx(1 / 4)
    assert floor_of([2, 1, 2], [0.5, 0.5, 1.0]) == pytest.approx(1 / 8)


def test_normal_by_hand() -> None:
    # E = 400 of 1600 samples: sd = sqrt(1600·¼·¾) = 17.32; .7979·17.32/400 = .03455
    assert floor_of([1600], [0.25]) == pytest.approx(0.03455, abs=5e-6)
    # half of the samples at 0, half at ½: same sum, less variance: sqrt(800·¼) = 14.14
    floor = compute_noise_floor(np.array([1600.0]), np.array([400.0]), np.array([200.0]), np.array([1600]))
    assert floor == pytest.approx(0.02821, abs=5e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 49), st.floats(0, 1)), min_size=1, max_size=8))
def test_same_as_binomial_formula(rows: list[tuple[int, float]]) -> None:
    numerator = denominator = 0.0
    for n, p in rows:
        chance, error = oracle.binomial_floor(n, p)
        numerator += n * error
        denominator += n * chance
    expected = pytest.approx(numerator / denominator, rel=1e-9, abs=1e-12) if denominator > 0 else None
    assert floor_of(*zip(*rows, strict=True)) == expected


@pytest.mark.parametrize(
    ("n", "p"),
    [
        ([3000, 400, 60, 25, 10], [0.05, 0.03, 0.02, 0.04, 0.3]),
        ([40, 30, 20, 20, 20], [0.3, 0.2, 0.25, 0.3, 0.2]),
        ([1_000_000, 200_000], [4.9e-5, 1e-5]),
        ([40_000, 900], [0.02, 0.5]),
    ],
)
def test_truth_scores_the_floor(n: list[int], p: list[float]) -> None:
    mean, error = simulate_field_rce(n, p, draws=6000)
    # 1 % for the ratio of expectations and the normal approximation
    assert floor_of(n, p) == pytest.approx(mean, abs=4 * error + 0.01 * mean)


def test_large_rare_values_are_exact() -> None:
    # Binomial(1e6, 4e-5) is Poisson(40) to 4e-5: Σ_k e^-40 40^k/k! |40/k − 1|
    k = np.arange(1, 200)
    mass = np.exp(-40 + k * np.log(40) - np.cumsum(np.log(k)))
    assert floor_of([10**6], [4e-5]) == pytest.approx(np.sum(mass * np.abs(40 / k - 1)), rel=2e-4)


def test_normal_continues_the_binomial() -> None:
    n = 100_000
    below, above = (floor_of([n], [BINOMIAL_LIMIT * factor / n]) for factor in (0.9999, 1.0001))
    assert below is not None and above is not None
    assert 0.96 < above / below < 1


def test_an_unexpected_single_positive_is_off_by_its_whole_count() -> None:
    # with E → 0 a counted value has Y = 1, and |E/1 − 1| → 1
    assert floor_of([100], [1e-9]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("n", "p"), [([20, 30], [0.1, 0.2]), ([4000, 30], [0.1, 0.2])])
def test_weight_per_sample_cancels(n: list[int], p: list[float]) -> None:
    assert floor_of(n, p, weight_per_sample=0.37) == pytest.approx(floor_of(n, p))


def test_order_does_not_matter() -> None:
    generator = np.random.default_rng(4)
    n, p = generator.integers(1, 500, 9000), generator.uniform(0, 0.2, 9000)
    order = generator.permutation(9000)
    assert floor_of(n, p) == pytest.approx(floor_of(n[order], p[order]), rel=1e-12)


def test_nothing_to_expect() -> None:
    assert floor_of([], []) is None
    assert floor_of([5, 7], [0, 0]) is None


def test_cell_floors_add_up_cells() -> None:
    cells, terciles = make_cells(1, weight=0.5), assign_terciles(make_cells(1))
    truth = truth_of(cells)
    by_value, by_tercile = compute_cell_noise_floors(cells, truth, terciles)
    expected = []
    for key in (cells.field_value_id, cells.field_value_id * 3 + terciles):
        parts = [key == k for k in np.unique(key)]
        n = np.array([cells.n_samples[part].sum() for part in parts])
        e = np.array([(cells.n_samples * truth)[part].sum() for part in parts])
        v = np.array([(cells.n_samples * truth * (1 - truth))[part].sum() for part in parts])
        expected.append(compute_noise_floor(n * 1.0, e, v, n))
    assert (by_value, by_tercile) == pytest.approx(tuple(expected))
    assert by_value is not None and by_tercile is not None and by_value < by_tercile


def test_the_truth_costs_nothing_on_any_draw() -> None:
    fit, test = make_cells(2), make_cells(3)
    truth = truth_of(test)
    costs = compute_fitting_costs(fit, test, truth_of(fit), truth, lambda _: truth, 3, 5, assign_terciles(test))
    assert costs == (0.0, 0.0)


def test_fitting_costs_what_two_independent_errors_say() -> None:
    # The refit is one rate per value from as many rows as test has, with weights: its error and test's are independent
    # and alike, so |Σp/Σy − 1| is about sqrt(2) times the floor.
    fit, test = make_cells(6, n=4000, weight=3.0), make_cells(6, n=4000, weight=3.0)
    rate_fit, rate_test = (np.array([0.0, 0.02, 0.04, 0.06, 0.08, 0.1])[c.field_value_id] for c in (fit, test))

    def refit(response: Floats) -> Floats:
        rate = fit.sum_by_value(response) / np.maximum(fit.sum_by_value(fit.weight), 1)
        return rate[test.field_value_id]

    terciles = assign_terciles(test)
    cost, _ = compute_fitting_costs(fit, test, rate_fit, rate_test, refit, 300, 1, terciles)
    floor, _ = compute_cell_noise_floors(test, rate_test, terciles)
    assert cost is not None and floor is not None
    assert (floor + cost) / floor == pytest.approx(np.sqrt(2), rel=0.08)


def test_fitting_costs_repeats_with_its_seed() -> None:
    cells = make_cells(7)
    truth, terciles = truth_of(cells), assign_terciles(cells)
    first, again, other = (
        compute_fitting_costs(cells, cells, truth, truth, lambda response: response / cells.weight, 5, seed, terciles)
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_fitting_costs_without_a_positive() -> None:
    cells = make_cells(8)
    zeros, terciles = np.zeros(len(cells)), assign_terciles(cells)
    assert compute_fitting_costs(cells, cells, zeros, zeros, lambda _: zeros, 3, 1, terciles) == (None, None)


def test_floor_refusals() -> None:
    with pytest.raises(FloorsError, match=r"mean reference score 1\.5 in 1 row\(s\): a probability"):
        floor_of([2, 2], [0.5, 1.5])
    with pytest.raises(FloorsError, match="mean reference score nan"):
        floor_of([2], [np.nan])
    with pytest.raises(FloorsError, match="a row without samples has no noise floor"):
        floor_of([2, 0], [0.5, 0.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 0}, "draws = 0: the attainable level is a mean"),
        ({"reference_fit": np.full(40, -0.1)}, r"reference score -0\.1 in 40 cell\(s\)"),
        ({"reference_test": np.full(40, 2.0)}, r"reference score 2\.0 in 40 cell\(s\)"),
        ({"reference_test": np.ones(3)}, "reference_test has 3 entries, its cells are 40"),
        ({"terciles": np.ones(2, np.int64)}, "terciles has 2 entries"),
        ({"refit": lambda _: np.ones(1)}, "the result of refit has 1 entries"),
    ],
)
def test_fitting_costs_refusals(changes: dict[str, Any], message: str) -> None:
    cells = make_cells(9)
    truth = truth_of(cells)
    arguments = {
        **{"fit_cells": cells, "test_cells": cells, "reference_fit": truth, "reference_test": truth},
        **{"refit": lambda _: truth, "draws": 2, "seed": 1, "terciles": assign_terciles(cells)},
    }
    with pytest.raises(FloorsError, match=message):
        compute_fitting_costs(**{**arguments, **changes})
