"""The AUC inside each field value, with what DeLong's variance of their average needs: one row per field value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacalib.cells.grouped_sums import sum_by_key
from adacalib.cells.logit_cells import Floats, Ints

_RESIDUE = 1e-9
"""Share of a cell's weight below which a difference of sums is rounding."""


class AucError(ValueError):
    """Score cells that hold no counts of two classes."""


@dataclass(frozen=True)
class ValueAucs:
    """AUC and DeLong's spreads inside each field value; all arrays of one length, one entry per field value.

    Attributes:
        field_value_id: dense id; each at most once.
        weight: sum of sample weights of both classes.
        has_both_classes: where not, auc, spreads and cell error mean nothing.
        auc: in [0, 1], ties at half credit.
        spread_1: weighted mean squared deviation of the positives' placements (share of negatives below) from auc.
        spread_0: the same of the negatives' placements (share of positives above).
        cell_error: see `AucEstimate`.
        count_1: number of samples with label 1.
        count_0: number of samples with label 0.
    """

    field_value_id: Ints
    weight: Floats
    has_both_classes: npt.NDArray[np.bool_]
    auc: Floats
    spread_1: Floats
    spread_0: Floats
    cell_error: Floats
    count_1: Floats
    count_0: Floats

    def __len__(self) -> int:
        return len(self.field_value_id)


def compute_value_aucs(
    field_value_id: Ints,
    cell: Ints,
    weight: Floats,
    response: Floats,
    n_samples: Ints | None = None,
    n_responses: Ints | None = None,
) -> ValueAucs:
    """Computes the AUC inside each field value, with what DeLong's variance of their average needs.

    DeLong, DeLong and Clarke-Pearson (1988): a positive's placement is the share of its value's negatives below it, a
    negative's the share of positives above it, ties half.

    Args:
        field_value_id, cell, weight, response, n_samples, n_responses: see `compute_field_auc`. The id may as well
            number combinations, of field value and method for instance.

    Returns:
        One entry per id that occurs, ids ascending; none for no rows.

    Raises:
        AucError: see `compute_field_auc`.
    """
    _check_columns(field_value_id, cell, weight, response)
    if (n_samples is None) != (n_responses is None):
        raise AucError("only one of n_samples and n_responses is given: give both, or neither where weights are counts")
    order = np.lexsort((cell, field_value_id))
    value_sorted, cell_sorted = field_value_id[order], cell[order]
    new_value = _differs(value_sorted)
    starts = np.flatnonzero(new_value | _differs(cell_sorted))
    dense = np.cumsum(new_value) - 1
    # all weight positive may leave a residue such as 1e-17 of negatives
    negative = np.where(weight - response > _RESIDUE * weight, weight - response, 0.0)
    counts_1 = response if n_responses is None else n_responses
    counts_0 = negative if n_samples is None else n_samples - counts_1
    ids = value_sorted[new_value]
    return _place_samples(
        ids,
        dense[starts],
        _add(response[order], starts),
        _add(negative[order], starts),
        sum_by_key(dense, counts_1[order], len(ids)),
        sum_by_key(dense, counts_0[order], len(ids)),
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


def _differs(values: Ints) -> npt.NDArray[np.bool_]:
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return first


def _add(values: Floats, starts: Ints) -> Floats:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _place_samples(
    ids: Ints, value: Ints, positive: Floats, negative: Floats, count_1: Floats, count_0: Floats
) -> ValueAucs:
    """From sorted cells (value: place of their id in ids) and numbers of samples of each class per value."""

    def add(values: Floats) -> Floats:
        return sum_by_key(value, values, len(ids))

    total_1, total_0 = add(positive), add(negative)
    both = (count_1 > 0) & (count_0 > 0) & (total_1 > 0) & (total_0 > 0)
    safe_1, safe_0 = np.where(both, total_1, 1.0), np.where(both, total_0, 1.0)
    placement_1 = (_sum_below(value, negative, len(ids)) + negative / 2) / safe_0[value]
    placement_0 = 1 - (_sum_below(value, positive, len(ids)) + positive / 2) / safe_1[value]
    auc = add(positive * placement_1) / safe_1
    return ValueAucs(
        field_value_id=ids,
        weight=total_1 + total_0,
        has_both_classes=both,
        auc=auc,
        spread_1=add(positive * (placement_1 - auc[value]) ** 2) / safe_1,
        spread_0=add(negative * (placement_0 - auc[value]) ** 2) / safe_0,
        cell_error=add(positive * negative) / 2 / (safe_1 * safe_0),
        count_1=count_1,
        count_0=count_0,
    )


def _sum_below(value: Ints, weight: Floats, n_values: int) -> Floats:
    """Per cell the weight of its value's lower cells."""
    below = np.concatenate([[0.0], np.cumsum(weight)])
    first = np.searchsorted(value, np.arange(n_values))
    result: Floats = np.maximum(below[:-1] - below[first][value], 0.0)
    return result
