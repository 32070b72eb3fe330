"""AUC and Field-AUC from score cells: by hand, against a brute-force count of pairs, and DeLong's equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.auc import AucError, average_value_aucs, compute_auc, compute_field_auc
from adacalib.cells.value_aucs import ValueAucs, compute_value_aucs
from tests import oracle_metrics as oracle

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 1)), min_size=1, max_size=50)


def split(rows: list[tuple[int, int, int]], value: int) -> tuple[list[int], list[int]]:
    """Cells of the positives and of the negatives of one field value."""
    return [c for v, c, y in rows if v == value and y], [c for v, c, y in rows if v == value and not y]


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    value, cell, label = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return value, cell, np.ones(len(rows)), label.astype(float)


def test_by_hand() -> None:
    # cells 0: one negative; 1: one positive, one negative; 2: one positive
    # pairs: (1 over 0) 1, (1 over 1) ½, (2 over 0) 1, (2 over 1) 1: 3.5 of 4
    estimate = compute_auc(np.array([2, 1, 0]), np.array([1.0, 2.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    assert estimate is not None
    assert estimate.auc == pytest.approx(0.875)
    # one of the four pairs shares a cell: half of it may be wrong
    assert estimate.cell_error == pytest.approx(0.125)
    # placements of the positives .75, 1 and of the negatives 1, .75: S10 = S01 = 2 · .125² = 1/32; variance 2 · 1/64
    assert estimate.standard_error == pytest.approx(math.sqrt(1 / 32))
    assert (estimate.n_values, estimate.n_samples, estimate.n_values_left_out) == (1, 4, 0)


@pytest.mark.parametrize(("order", "expected"), [((0, 1), 1.0), ((1, 0), 0.0), ((3, 3), 0.5)])
def test_perfect_reversed_and_tied(order: tuple[int, int], expected: float) -> None:
    estimate = compute_auc(np.array(order), np.array([5.0, 4.0]), np.array([0.0, 4.0]))
    assert estimate is not None and estimate.auc == expected


@settings(deadline=None, max_examples=80)
@given(ROWS)
def test_field_auc_same_as_counting_pairs(rows: list[tuple[int, int, int]]) -> None:
    numerator = denominator = left_out = 0.0
    for value in range(4):
        positives, negatives = split(rows, value)
        n = len(positives) + len(negatives)
        if positives and negatives:
            numerator += n * oracle.auc(positives, negatives)
            denominator += n
        else:
            left_out += n
    estimate = compute_field_auc(*columns(rows))
    if denominator == 0:
        assert estimate is None
    else:
        assert estimate is not None
        assert estimate.auc == pytest.approx(numerator / denominator, abs=1e-12)
        assert (estimate.n_samples, estimate.n_samples_left_out) == (denominator, left_out)
        assert 0 <= estimate.standard_error <= 0.7072 and 0 <= estimate.cell_error <= 0.5


def test_delong_same_as_its_equations() -> None:
    generator = np.random.default_rng(3)
    rows = [(int(v), int(c), int(y)) for v, c, y in zip(*generator.integers(0, [[3], [12], [2]], (3, 90)), strict=True)]
    share_variance = 0.0
    for value in range(3):
        positives, negatives = split(rows, value)
        share_variance += ((len(positives) + len(negatives)) / 90) ** 2 * oracle.delong_variance(positives, negatives)
    estimate = compute_field_auc(*columns(rows))
    assert estimate is not None
    assert estimate.standard_error == pytest.approx(math.sqrt(share_variance), rel=1e-12)
    pooled = compute_auc(*columns(rows)[1:])
    positives, negatives = ([c for _, c, y in rows if y == label] for label in (1, 0))
    assert pooled is not None
    assert pooled.standard_error == pytest.approx(math.sqrt(oracle.delong_variance(positives, negatives)), rel=1e-12)


def test_delong_is_the_spread_over_samples() -> None:
    # 400 data sets of 60 positives ~ N(1, 1) and 80 negatives ~ N(0, 1), cells of width 1/4
    generator = np.random.default_rng(11)
    estimates = []
    for _ in range(400):
        scores = np.concatenate([generator.normal(1, 1, 60), generator.normal(0, 1, 80)])
        estimate = compute_auc(np.floor(scores * 4).astype(np.int64), np.ones(140), np.repeat([1.0, 0.0], [60, 80]))
        assert estimate is not None
        estimates.append((estimate.auc, estimate.standard_error))
    aucs, errors = np.array(estimates).T
    # a standard deviation from 400 draws is itself known to 1/sqrt(800) = 3.5 %
    assert np.mean(errors) == pytest.approx(np.std(aucs), rel=0.12)


def test_cell_error_bounds_what_coarse_cells_cost() -> None:
    generator = np.random.default_rng(5)
    label = generator.integers(0, 2, 3000)
    value = generator.integers(0, 5, 3000)
    score = generator.normal(label * 0.8, 1.0)
    weight, response = np.ones(3000), label.astype(float)
    exact = compute_field_auc(value, np.floor(score * 1e7).astype(np.int64), weight, response)
    coarse = compute_field_auc(value, np.floor(score).astype(np.int64), weight, response)
    assert exact is not None and coarse is not None
    assert exact.cell_error < 1e-6
    assert 0 < abs(coarse.auc - exact.auc) <= coarse.cell_error


def test_row_order_and_splitting_rows_do_not_matter_and_twice_is_weight_two() -> None:
    generator = np.random.default_rng(8)
    value, cell = generator.integers(0, 4, 200), generator.integers(0, 9, 200)
    weight = generator.integers(1, 5, 200).astype(float)
    response = np.floor(weight * generator.random(200))
    order = generator.permutation(200)
    expected = compute_field_auc(value, cell, weight, response)
    shuffled = compute_field_auc(value[order], cell[order], weight[order], response[order])
    twice = compute_field_auc(*(np.concatenate([column, column]) for column in (value, cell, weight, response)))
    doubled = compute_field_auc(value, cell, 2 * weight, 2 * response)
    assert expected == shuffled
    assert twice == doubled and twice is not None and expected is not None
    assert twice.auc == pytest.approx(expected.auc)
    # twice the weight of the same samples adds no evidence, when the counts are given
    n, n_1 = weight.astype(np.int64), response.astype(np.int64)
    counted = compute_field_auc(value, cell, 2 * weight, 2 * response, n, n_1)
    assert counted is not None and counted.standard_error == pytest.approx(expected.standard_error)


def test_a_single_positive_takes_the_pooled_spread() -> None:
    # value 1: positives in cells 1 and 3, negatives in 0, 2: placements of positives .5, 1: S10 = 2 · .25² = .125;
    # of negatives 1, .5: S01 = .125. Value 2: one positive over two negatives in cells 0, 1 (auc 1): S10 pooled .125,
    # its negatives' spread is 0.
    value = np.array([1, 1, 1, 1, 2, 2, 2])
    cell = np.array([1, 3, 0, 2, 5, 0, 1])
    response = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    estimate = compute_field_auc(value, cell, np.ones(7), response)
    assert estimate is not None
    variance = (4 / 7) ** 2 * (0.125 / 2 + 0.125 / 2) + (3 / 7) ** 2 * 0.125
    assert estimate.standard_error == pytest.approx(math.sqrt(variance))


def test_one_pair_has_the_widest_error() -> None:
    estimate = compute_auc(np.array([0, 1]), np.ones(2), np.array([0.0, 1.0]))
    assert estimate is not None and estimate.standard_error == pytest.approx(math.sqrt(0.25 + 0.25))


@pytest.mark.parametrize("response", [[0.0, 0.0], [1.0, 1.0]])
def test_one_class_has_no_auc(response: list[float]) -> None:
    assert compute_auc(np.array([0, 1]), np.ones(2), np.array(response)) is None


def test_value_aucs_by_hand() -> None:
    # value 7: the four samples of test_by_hand; value 2: one class; ids come out ascending whatever the rows' order
    value = np.array([7, 7, 2, 7])
    found = compute_value_aucs(value, np.array([2, 1, 5, 0]), np.array([1.0, 2.0, 3.0, 1.0]), np.array([1, 1, 0, 0.0]))
    np.testing.assert_array_equal(found.field_value_id, [2, 7])
    np.testing.assert_array_equal(found.has_both_classes, [False, True])
    np.testing.assert_allclose(found.weight, [3, 4])
    np.testing.assert_allclose([found.count_1[1], found.count_0[1], found.count_0[0]], [2, 2, 3])
    # placements of either class .75 and 1: their mean squared deviation is .125²
    np.testing.assert_allclose([found.auc[1], found.spread_1[1], found.spread_0[1]], [0.875, 1 / 64, 1 / 64])
    np.testing.assert_allclose(found.cell_error[1], 0.125)


@settings(deadline=None, max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_field_auc_does_not_care_where_the_values_were_computed(
    rows: list[tuple[int, int, int]], random: object
) -> None:
    # each value by itself, put together in any order, as several workers hand them over
    parts = [
        compute_value_aucs(*columns([row for row in rows if row[0] == value])) for value in {v for v, _, _ in rows}
    ]
    random.shuffle(parts)  # type: ignore[attr-defined]
    names = ValueAucs.__dataclass_fields__
    together = ValueAucs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
    found, expected = average_value_aucs(together), compute_field_auc(*columns(rows))
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.auc == pytest.approx(expected.auc, rel=1e-12)
        assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)
        assert found.cell_error == pytest.approx(expected.cell_error, rel=1e-12)
        assert (found.n_values, found.n_samples_left_out) == (expected.n_values, expected.n_samples_left_out)


def test_rounding_makes_no_second_class() -> None:
    # .1 + .2 against .3: 4e-17 of a negative
    assert compute_auc(np.array([0, 1]), np.array([0.1 + 0.2, 1.0]), np.array([0.3, 1.0])) is None


def test_no_rows_have_no_auc() -> None:
    none = np.zeros(0)
    assert compute_auc(none.astype(np.int64), none, none) is None


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(AucError, match=r"\[2, 2, 1, 2\] rows: one of each"):
        compute_auc(np.array([0, 1]), np.ones(1), np.array([0.0, 1.0]))


@pytest.mark.parametrize(("weight", "response"), [(0.0, 0.0), (1.0, 2.0), (1.0, -1.0), (np.nan, 0.0), (1.0, np.nan)])
def test_impossible_counts_are_refused(weight: float, response: float) -> None:
    with pytest.raises(AucError, match=r"in 1 score cell\(s\): the weight must be positive"):
        compute_auc(np.array([0, 1]), np.array([1.0, weight]), np.array([0.0, response]))


def test_half_of_the_counts_is_refused() -> None:
    two = np.array([0, 1])
    with pytest.raises(AucError, match="only one of n_samples and n_responses"):
        compute_auc(two, np.ones(2), np.array([0.0, 1.0]), n_samples=np.ones(2, np.int64))
