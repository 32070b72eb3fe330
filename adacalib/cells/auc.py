"""AUC and Field-AUC with DeLong standard errors, from a histogram of each method's own scores.

Score cells are slices of a method's calibrated logit; a finer grid only makes `cell_error` smaller. Samples of one
cell count as tied, at half credit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.cells.grouped_sums import sum_by_key
from adacalib.cells.logit_cells import Floats, Ints

_MAX_VARIANCE = 0.25
"""Largest variance of a quantity in [0, 1] (Popoviciu), used where data say nothing about it."""

_RESIDUE = 1e-9
"""Share of a cell's weight below which a difference of sums is rounding."""


class AucError(ValueError):
    """Score cells that hold no counts of two classes."""


@dataclass(frozen=True)
class AucEstimate:
    """An AUC, or a weighted mean of the field values' AUCs.

    Attributes:
        auc: in [0, 1], ties at half credit.
        standard_error: DeLong's, ≥ 0.
        cell_error: upper bound of |auc − AUC of the samples' exact scores|, since half credit is off by at most
            half of the pairs that share a cell: Σ_cells w1·w0/2 / (W1·W0).
        n_values: number of field values with both classes (1 for the plain AUC).
        n_samples: number of samples in them.
        n_values_left_out: number of field values with one class only.
        n_samples_left_out: number of samples in them.
    """

    auc: float
    standard_error: float
    cell_error: float
    n_values: int
    n_samples: int
    n_values_left_out: int
    n_samples_left_out: int


def compute_auc(
    cell: Ints, weight: Floats, response: Floats, n_samples: Ints | None = None, n_responses: Ints | None = None
) -> AucEstimate | None:
    """Computes the AUC of all samples, field values pooled.

    Args:
        cell: index of the score cell, increasing with the score; in any order, a cell may repeat.
        weight, response, n_samples, n_responses: see `compute_field_auc`.

    Returns:
        The estimate; None where there is one class only, or no sample.

    Raises:
        AucError: see `compute_field_auc`.
    """
    return compute_field_auc(np.zeros(len(cell), np.int64), cell, weight, response, n_samples, n_responses)


def compute_field_auc(
    field_value_id: Ints,
    cell: Ints,
    weight: Floats,
    response: Floats,
    n_samples: Ints | None = None,
    n_responses: Ints | None = None,
) -> AucEstimate | None:
    """Computes Field-AUC: the AUC inside each field value, weighted by the value's samples; one-class values left out.

    Its variance is Σ_z w_z²·var_z, w_z the value's share of the weight. A value with a single positive (negative)
    says nothing about the spread over positives (negatives): it takes the spread pooled over the other values, or
    1/4, the largest there is, where there are none.

    Args:
        field_value_id: dense id per row; rows in any order, a combination of id and cell may repeat.
        cell: index of the score cell, increasing with the score.
        weight: sum of sample weights, > 0.
        response: weighted sum of labels, in [0, weight].
        n_samples: number of samples; without it weights are taken for counts.
        n_responses: number of samples with label 1; without it responses are taken for counts. The two decide how
            many observations the standard error rests on; that weights differ from sample to sample is not in it.

    Returns:
        The estimate; None where no field value has both classes.

    Raises:
        AucError: lengths differ, one of the two counts is given without the other, a weight is not positive, or a
            response is not in [0, weight].
    """
    _check_columns(field_value_id, cell, weight, response)
    if (n_samples is None) != (n_responses is None):
        raise AucError("only one of n_samples and n_responses is given: give both, or neither where weights are counts")
    if not len(cell):
        return None
    order = np.lexsort((cell, field_value_id))
    value_sorted, cell_sorted = field_value_id[order], cell[order]
    new_value = _differs(value_sorted)
    starts = np.flatnonzero(new_value | _differs(cell_sorted))
    dense = np.cumsum(new_value) - 1
    # all weight positive may leave a residue such as 1e-17 of negatives
    negative = np.where(weight - response > _RESIDUE * weight, weight - response, 0.0)
    counts_1 = response if n_responses is None else n_responses
    counts_0 = negative if n_samples is None else n_samples - counts_1
    n_values = int(dense[-1]) + 1
    return _average_values(
        dense[starts],
        np.add.reduceat(response[order], starts),
        np.add.reduceat(negative[order], starts),
        sum_by_key(dense, counts_1[order], n_values),
        sum_by_key(dense, counts_0[order], n_values),
    )


def _check_columns(field_value_id: Ints, cell: Ints, weight: Floats, response: Floats) -> None:
    lengths = [len(field_value_id), len(cell), len(weight), len(response)]
    if len(set(lengths)) > 1:
        raise AucError(f"field_value_id, cell, weight and response have {lengths} rows: one of each per score cell")
    # written so that NaN is refused; sums of one cell may differ in their last bits
    bad = ~((weight > 0) & (response >= 0) & (response <= weight * (1 + _RESIDUE)))
    if np.any(bad):
        at = int(np.flatnonzero(bad)[0])
        raise AucError(
            f"weight {weight[at]} and response {response[at]} in {np.count_nonzero(bad)} score cell(s): the weight "
            "must be positive and the response (weighted sum of labels) between 0 and it"
        )


def _differs(values: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return first


def _average_values(
    value: Ints, positive: Floats, negative: Floats, count_1: Floats, count_0: Floats
) -> AucEstimate | None:
    """From sorted cells (value from 0, without gaps) and numbers of samples of each class per value."""
    n_values = len(count_1)

    def add(values: Floats) -> Floats:
        return sum_by_key(value, values, n_values)

    total_1, total_0 = add(positive), add(negative)
    both = (count_1 > 0) & (count_0 > 0) & (total_1 > 0) & (total_0 > 0)
    if not both.any():
        return None
    safe_1, safe_0 = np.where(both, total_1, 1.0), np.where(both, total_0, 1.0)
    # DeLong's placements: share of negatives below a positive, share of positives above a negative, ties half
    placement_1 = (_sum_below(value, negative, n_values) + negative / 2) / safe_0[value]
    placement_0 = 1 - (_sum_below(value, positive, n_values) + positive / 2) / safe_1[value]
    auc = add(positive * placement_1) / safe_1
    spread_1 = add(positive * (placement_1 - auc[value]) ** 2) / safe_1
    spread_0 = add(negative * (placement_0 - auc[value]) ** 2) / safe_0
    variance = _compute_class_variance(spread_1[both], count_1[both]) + _compute_class_variance(
        spread_0[both], count_0[both]
    )
    share = (total_1 + total_0)[both] / (total_1 + total_0)[both].sum()
    cell_error = (add(positive * negative) / 2 / (safe_1 * safe_0))[both]
    count = count_1 + count_0
    return AucEstimate(
        auc=float(np.sum(share * auc[both])),
        standard_error=float(np.sqrt(np.sum(share**2 * variance))),
        cell_error=float(np.sum(share * cell_error)),
        n_values=int(np.count_nonzero(both)),
        n_samples=round(float(count[both].sum())),
        n_values_left_out=int(np.count_nonzero(~both)),
        n_samples_left_out=round(float(count[~both].sum())),
    )


def _sum_below(value: Ints, weight: Floats, n_values: int) -> Floats:
    """Per cell the weight of its value's lower cells."""
    below = np.concatenate([[0.0], np.cumsum(weight)])
    first = np.searchsorted(value, np.arange(n_values))
    result: Floats = np.maximum(below[:-1] - below[first][value], 0.0)
    return result


def _compute_class_variance(spread: Floats, count: Floats) -> Floats:
    """One class's term of DeLong's variance per value: S/m, S = m/(m − 1) times the mean squared deviation."""
    several = count >= 2
    freedom = np.where(several, count - 1, 1.0)
    pooled = _MAX_VARIANCE
    if several.any():
        pooled = float(np.sum((spread * count)[several]) / np.sum(freedom[several]))
    return np.where(several, spread / freedom, pooled / np.maximum(count, 1.0))
