"""What Field-RCE can be at best: the noise floor of the truth itself, and the level that is attainable by fitting.

Field-RCE of the truth is not 0, because the labels are a sample. Both figures take a reference (a method's scores,
or the truth where it is known) for the truth, belong to a test set and a field, and are shared by all methods.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adacalib.cells.grouped_sums import compute_field_rce, sum_by_key
from adacalib.cells.logit_cells import Floats, Ints, LogitCells
from adacalib.cells.terciles import N_TERCILES

BINOMIAL_LIMIT = 50.0
"""Expected positives from which the normal approximation serves; right there it is 3 % too low for rare positives."""

_ROWS_AT_ONCE = 4096


class FloorsError(ValueError):
    """A reference that is no probability, or arrays that do not belong together."""


def compute_noise_floor(weight: Floats, expected: Floats, variance: Floats, n_samples: Ints) -> float | None:
    """Computes the expectation of Field-RCE if the reference scores were the truth.

    Field-RCE counts a row (a field value, or a field value's tercile) only where it has a positive. Over repeated
    labels a row therefore enters with chance π = P(Y ≥ 1), and then with the mean c of |E/Y − 1| given Y ≥ 1:

        floor = Σ w·π·c / Σ w·π,

    the ratio of the expectations of Field-RCE's numerator and denominator. (Their ratio's own expectation differs
    by terms of the order of the denominator's relative variance, and not at all where every π is 1.) It depends on
    the reference and the samples only, not on which rows happened to have a positive, so it compares with
    the attainable level. Y is Binomial(n, E/n) below 50 expected positives; above, c = sqrt(2/pi)·sd/E, the mean
    absolute deviation of a normal, to first order in 1/Y, and π = 1.

    Args:
        weight: sum of sample weights per row, > 0; shape (n_rows,).
        expected: Σ w·p per row, in [0, weight].
        variance: variance of Σ w·y per row: Σ w²·p(1 − p).
        n_samples: number of samples per row, ≥ 1. A row's samples share its mean weight in the binomial.

    Returns:
        Relative error, ≥ 0; None without rows or with no positive expected anywhere.

    Raises:
        FloorsError: the reference is not between 0 and 1 in the mean of a row, or a row has no samples.
    """
    rate = _check_rates(weight, expected, n_samples)
    expected_count = n_samples * rate
    chance = np.ones(len(weight))
    error = np.zeros(len(weight))
    sparse = expected_count < BINOMIAL_LIMIT
    chance[sparse], error[sparse] = _compute_binomial_errors(n_samples[sparse], rate[sparse])
    error[~sparse] = np.sqrt(2 / np.pi * variance[~sparse]) / expected[~sparse]
    denominator = float(np.sum(weight * chance))
    return float(np.sum(weight * chance * error)) / denominator if denominator > 0 else None


def _check_rates(weight: Floats, expected: Floats, n_samples: Ints) -> Floats:
    if np.any(n_samples < 1) or np.any(weight <= 0):
        raise FloorsError("a row without samples has no noise floor: leave rows with n_samples 0 or weight 0 out")
    rate = expected / weight
    # the last bits of two sums may differ, so 1 + 1e-9 still is a probability
    bad = ~((rate >= 0) & (rate <= 1 + 1e-9))
    if np.any(bad):
        raise FloorsError(
            f"mean reference score {rate[bad][0]} in {np.count_nonzero(bad)} row(s): a probability in [0, 1] is "
            "needed, so give sums of probabilities, not of logits"
        )
    return np.minimum(rate, 1.0)


def _compute_binomial_errors(n_samples: Ints, rate: Floats) -> tuple[Floats, Floats]:
    """P(Y ≥ 1) and E[|n·rate/Y − 1| given Y ≥ 1] of Y ~ Binomial(n, rate), with n·rate below `BINOMIAL_LIMIT`.

    Rows are taken in the order of their expectation, so that each block sums over as few counts as it needs.
    """
    chance, error = np.zeros(len(rate)), np.zeros(len(rate))
    order = np.argsort(n_samples * rate)
    for start in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[start : start + _ROWS_AT_ONCE]
        chance[rows], error[rows] = _sum_over_counts(n_samples[rows].astype(np.float64), rate[rows])
    return chance, error


def _sum_over_counts(n: Floats, rate: Floats) -> tuple[Floats, Floats]:
    expected = n * rate
    largest = float(expected.max())
    # beyond twelve standard deviations (and 20 counts, for small expectations) nothing is left of the distribution
    count = np.arange(1, np.ceil(largest + 12 * np.sqrt(largest) + 20) + 1)
    inner = (rate > 0) & (rate < 1)
    p = np.where(inner, rate, 0.5)
    # P(k)/P(k − 1) = (n − k + 1)/k · p/(1 − p); 0 beyond k = n
    with np.errstate(divide="ignore"):
        steps = np.log(np.maximum(n[:, None] - count + 1, 0) / count) + (np.log(p) - np.log1p(-p))[:, None]
    mass = np.exp(n[:, None] * np.log1p(-p)[:, None] + np.cumsum(steps, axis=1))
    chance = np.where(inner, -np.expm1(n * np.log1p(-p)), rate)
    deviation = np.sum(mass * np.abs(expected[:, None] / count - 1), axis=1)
    # a rate of 0 never has a positive, a rate of 1 has all of them: no deviation in either
    return chance, np.where(inner, deviation / np.where(chance > 0, chance, 1.0), 0.0)


def compute_cell_noise_floors(
    test_cells: LogitCells, reference_test: Floats, terciles: Ints
) -> tuple[float | None, float | None]:
    """Computes the noise floor of Field-RCE and of Field-RCE over terciles for a reference known per logit cell.

    Args:
        test_cells: cells of the un-calibrated logit on the test split.
        reference_test: the reference's probability per cell, in [0, 1]; shape (n_cells,).
        terciles: `terciles.assign_terciles` of the same cells.

    Returns:
        (field_rce_noise_floor, field_rce_terciles_noise_floor).

    Raises:
        FloorsError: see `compute_noise_floor`; or lengths differ.
    """
    _check_lengths(test_cells, reference_test, "reference_test")
    _check_lengths(test_cells, terciles, "terciles")
    weight = test_cells.weight
    mean_weight = weight / test_cells.n_samples
    columns = (weight, weight * reference_test, weight * mean_weight * reference_test * (1 - reference_test))
    floors = []
    n_keys = test_cells.n_values * N_TERCILES
    for key in (test_cells.field_value_id, test_cells.field_value_id * N_TERCILES + terciles):
        n_samples = sum_by_key(key, test_cells.n_samples, n_keys).astype(np.int64)
        used = n_samples > 0
        total, expected, variance = (sum_by_key(key, column, n_keys)[used] for column in columns)
        floors.append(compute_noise_floor(total, expected, variance, n_samples[used]))
    return floors[0], floors[1]


def compute_fitting_costs(
    fit_cells: LogitCells,
    test_cells: LogitCells,
    reference_fit: Floats,
    reference_test: Floats,
    refit: Callable[[Floats], Floats],
    draws: int,
    seed: int,
    terciles: Ints,
) -> tuple[float | None, float | None]:
    """Computes how much more than the truth a correctly specified calibrator, fitted on as many rows, scores in test.

    Per draw: binomial labels from the reference in every cell of train ∪ dev and of test, the calibrator refitted
    on the former, its Field-RCE on the latter less that of the reference itself on the same labels, which takes away
    most of the draw's noise. The mean over draws is returned; added to the noise floor it is the attainable level.

    Args:
        fit_cells: cells of train ∪ dev. All samples of a cell count with the cell's mean weight.
        test_cells: cells of the test split.
        reference_fit: the reference's probability per fit cell, in [0, 1].
        reference_test: the same per test cell.
        refit: from a weighted response per fit cell to the refitted probability per test cell.
        draws: number of repetitions, ≥ 1.
        seed: of the labels; the same seed gives the same figures.
        terciles: `terciles.assign_terciles` of the test cells.

    Returns:
        Differences of (field_rce, field_rce_terciles). Shrinkage may make one negative: Field-RCE is smaller for
        scores that are a little too low. Draws without any positive in test have no Field-RCE and are left out; None
        where no draw is left.

    Raises:
        FloorsError: fewer than one draw, a reference outside [0, 1], or lengths differ.
    """
    if draws < 1:
        raise FloorsError(f"draws = {draws}: the attainable level is a mean over draws, so at least 1 is needed")
    for cells, values, name in (
        (fit_cells, reference_fit, "reference_fit"),
        (test_cells, reference_test, "reference_test"),
        (test_cells, terciles, "terciles"),
    ):
        _check_lengths(cells, values, name)
    generator = np.random.default_rng(seed)
    keys = (test_cells.field_value_id, test_cells.field_value_id * N_TERCILES + terciles)
    costs: tuple[list[float], list[float]] = ([], [])
    for _ in range(draws):
        fit_response = _draw_counts(generator, fit_cells, reference_fit) * fit_cells.weight / fit_cells.n_samples
        score = refit(fit_response)
        _check_lengths(test_cells, score, "the result of refit")
        counts = _draw_counts(generator, test_cells, reference_test)
        for key, found in zip(keys, costs, strict=True):
            own, least = (_compute_draw_rce(test_cells, key, counts, each) for each in (score, reference_test))
            if own is not None and least is not None:
                found.append(own - least)
    return _mean(costs[0]), _mean(costs[1])


def _draw_counts(generator: np.random.Generator, cells: LogitCells, probability: Floats) -> Ints:
    bad = ~((probability >= 0) & (probability <= 1))
    if np.any(bad):
        raise FloorsError(
            f"reference score {probability[bad][0]} in {np.count_nonzero(bad)} cell(s): labels can only be drawn from "
            "probabilities in [0, 1]"
        )
    return generator.binomial(cells.n_samples, probability)


def _compute_draw_rce(cells: LogitCells, key: Ints, counts: Ints, score: Floats) -> float | None:
    n_keys = cells.n_values * N_TERCILES
    return compute_field_rce(
        weight=sum_by_key(key, cells.weight, n_keys),
        response=sum_by_key(key, counts * cells.weight / cells.n_samples, n_keys),
        score_sum=sum_by_key(key, cells.weight * score, n_keys),
        n_responses=sum_by_key(key, counts, n_keys).astype(np.int64),
    )


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _check_lengths(cells: LogitCells, values: Floats | Ints, name: str) -> None:
    if len(values) != len(cells):
        raise FloorsError(f"{name} has {len(values)} entries, its cells are {len(cells)}: give one per cell")
