"""What Spark's grouping of the test split hands over, added up per method for the metrics in sum_metrics.

Sums are kept by (field value, tercile of the un-calibrated logit, jackknife group): one pass over the rows serves
the metrics of every method, their per-value rows and their intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from adacalib.cells.logit_cells import Floats, Ints
from adacalib.cells.sum_metrics import SUM_METRICS, MethodSums, compute_field_rce
from adacalib.cells.terciles import N_TERCILES

__all__ = [
    "SUM_METRICS",
    "GroupedSums",
    "MethodSums",
    "MetricsError",
    "compute_field_rce",
    "iterate_leave_outs",
    "sum_by_key",
    "sum_method",
]


class MetricsError(ValueError):
    """Sums that no metric can be computed from, or a method or metric that they do not hold."""


def sum_by_key(key: Ints, values: Floats | Ints, n_keys: int) -> Floats:
    """Adds up values that share a key, 0 … n_keys - 1; shape (n_keys,), 0 where a key does not occur."""
    return np.bincount(key, weights=values, minlength=n_keys).astype(np.float64)


@dataclass(frozen=True)
class GroupedSums:
    """Sums of the test split of one field, one row per (field value id, tercile, jackknife group) that occurs.

    All arrays have length n_rows; the order of the rows is free, and a combination may stand in several rows.

    Attributes:
        field_value_id: dense id, 0 … n_values - 1; 0 is unseen values.
        tercile: 0, 1 or 2, see `terciles.assign_terciles`.
        group: jackknife group, 0 … n_groups - 1 (hash of the sample modulo n_groups).
        weight: sum of sample weights, > 0.
        response: weighted sum of labels, in [0, weight].
        n_samples: number of rows of the table.
        n_responses: number of rows with label 1.
        score_sums: per method Σ w·p, p the method's probability.
        log_loss_sums: per method Σ w·(−log likelihood), natural logarithm.
        n_values: number of dense ids, id 0 included.
        n_groups: number of jackknife groups.
        truth_sum: Σ w·t, t the true probability; None where it is not known.
        truth_error_sums: per method Σ w·|p − t|; of the same methods as score_sums, or empty without a truth.

    Raises:
        MetricsError: lengths differ, an index is out of range, a sum is not finite, a weight is not positive, or
            response and n_responses disagree on whether there is a positive; all faults at once.
    """

    field_value_id: Ints
    tercile: Ints
    group: Ints
    weight: Floats
    response: Floats
    n_samples: Ints
    n_responses: Ints
    score_sums: dict[str, Floats]
    log_loss_sums: dict[str, Floats]
    n_values: int
    n_groups: int
    truth_sum: Floats | None = None
    truth_error_sums: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = _find_faults(self)
        if faults:
            raise MetricsError("grouped sums of the test split: " + "; ".join(faults))

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods summed."""
        return tuple(self.score_sums)


def _find_faults(sums: GroupedSums) -> list[str]:
    columns = {name: getattr(sums, name) for name in ("weight", "response", "n_samples", "n_responses")}
    columns |= {} if sums.truth_sum is None else {"truth_sum": sums.truth_sum}
    for name in ("score_sums", "log_loss_sums", "truth_error_sums"):
        columns |= {f"{name}[{method}]": values for method, values in getattr(sums, name).items()}
    indexes = {"field_value_id": sums.n_values, "tercile": N_TERCILES, "group": sums.n_groups}
    faults = [
        f"{name} has {len(values)} rows, weight has {len(sums.weight)}"
        for name, values in (columns | {name: getattr(sums, name) for name in indexes}).items()
        if len(values) != len(sums.weight)
    ]
    for name, limit in indexes.items():
        values = getattr(sums, name)
        if len(values) and not 0 <= values.min() <= values.max() < limit:
            faults.append(f"{name} runs from {values.min()} to {values.max()}, allowed are 0 to {limit - 1}")
    for name, values in columns.items():
        n_bad = int(np.count_nonzero(~np.isfinite(values)))
        if n_bad:
            faults.append(f"{name} is NaN or infinite in {n_bad} rows: look for such scores or weights in its table")
    if sums.score_sums.keys() != sums.log_loss_sums.keys():
        faults.append(f"score_sums of {sorted(sums.score_sums)}, log_loss_sums of {sorted(sums.log_loss_sums)}")
    with_truth = sums.score_sums.keys() if sums.truth_sum is not None else set()
    if sums.truth_error_sums.keys() != with_truth:
        faults.append(
            f"truth_error_sums of {sorted(sums.truth_error_sums)} where {sorted(with_truth)} are expected: those of "
            "score_sums with truth_sum, none without it"
        )
    if np.any(sums.weight <= 0):
        faults.append(f"weight is {sums.weight.min()} in a row: only positive weights have a meaning here")
    if len(sums.response) == len(sums.n_responses) and np.any((sums.response > 0) != (sums.n_responses > 0)):
        faults.append("response and n_responses disagree on whether there is a positive: are they of the same rows?")
    return faults


def sum_method(sums: GroupedSums, method: str) -> MethodSums:
    """Adds up one method's sums per field value and tercile.

    Raises:
        MetricsError: the sums hold no such method.
    """
    return _sum_rows(sums, _check_method(sums, method), slice(None))


def iterate_leave_outs(sums: GroupedSums, method: str) -> Iterator[MethodSums]:
    """Yields the method's sums without each jackknife group in turn, in the order of the groups.

    Groups without a row are left out, so there are as many items as groups that occur.

    Raises:
        MetricsError: the sums hold no such method.
    """
    total = sum_method(sums, method)
    order = np.argsort(sums.group, kind="stable")
    bounds = np.searchsorted(sums.group[order], np.arange(sums.n_groups + 1))
    for start, end in pairwise(bounds):
        if end > start:
            yield total.subtract(_sum_rows(sums, method, order[start:end]))


def _check_method(sums: GroupedSums, method: str) -> str:
    if method not in sums.score_sums:
        known = ", ".join(sorted(sums.score_sums)) or "none"
        raise MetricsError(f"there are no sums of a method {method!r}; methods summed: {known}")
    return method


def _sum_rows(sums: GroupedSums, method: str, rows: Ints | slice) -> MethodSums:
    key = sums.field_value_id[rows] * N_TERCILES + sums.tercile[rows]

    def add(values: Floats | Ints) -> Floats:
        return sum_by_key(key, values[rows], sums.n_values * N_TERCILES).reshape(sums.n_values, N_TERCILES)

    return MethodSums(
        weight=add(sums.weight),
        response=add(sums.response),
        score_sum=add(sums.score_sums[method]),
        log_loss_sum=add(sums.log_loss_sums[method]),
        n_samples=add(sums.n_samples).astype(np.int64),
        n_responses=add(sums.n_responses).astype(np.int64),
        truth_sum=None if sums.truth_sum is None else add(sums.truth_sum),
        truth_error_sum=None if sums.truth_sum is None else add(sums.truth_error_sums[method]),
    )
