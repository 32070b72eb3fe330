"""Errors by how many samples a field value was fitted on: the paper's open question of data sparsity."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, sum_method
from adacalib.cells.logit_cells import Floats, Ints

N_DECILES = 10


class SparsityError(ValueError):
    """Numbers of fit samples that do not belong to the sums."""


@dataclass(frozen=True)
class FrequencyGroup:
    """One method on the test samples of field values that are about as frequent.

    Attributes:
        decile: 1 (fewest fit samples) … 10 (most); None for values unseen in train ∪ dev.
        n_values: number of field values; of the unseen, which are one row of the sums, 1.
        min_fit_samples, max_fit_samples: their smallest and largest number of samples in train ∪ dev.
        n_samples, n_responses: their test samples, and those with label 1.
        field_rce: Eq. 3 over these values; None without a positive.
        truth_error: Σw|p − t|/Σw·t over their test samples; None where the truth is not known, or without samples.
        truth_field_rce: Eq. 3 with the truth in place of the label.
    """

    decile: int | None
    n_values: int
    min_fit_samples: int
    max_fit_samples: int
    n_samples: int
    n_responses: int
    field_rce: float | None
    truth_error: float | None
    truth_field_rce: float | None


def assign_frequency_deciles(n_fit_samples_V: Floats | Ints) -> Ints:
    """Assigns each seen field value to one of ten groups of equally many values, by its number of fit samples.

    The i-th of n values in increasing order (i from 0; of equally frequent ones the larger id first) comes to group
    floor(10·i/n) + 1: groups differ by one value at most, and with fewer than ten values some are empty.

    Args:
        n_fit_samples_V: samples in train ∪ dev per field value id; shape (n_values,). Ids without any, id 0 (unseen)
            among them, belong to no group.

    Returns:
        1 … 10 per id, 0 for those of no group; shape (n_values,).
    """
    decile = np.zeros(len(n_fit_samples_V), np.int64)
    ids = np.arange(len(n_fit_samples_V))
    seen = ids[(ids > 0) & (n_fit_samples_V > 0)]
    increasing = seen[np.lexsort((-seen, n_fit_samples_V[seen]))]
    decile[increasing] = N_DECILES * np.arange(len(seen)) // max(len(seen), 1) + 1
    return decile


def compute_frequency_deciles(
    n_fit_samples_V: Floats | Ints, sums: GroupedSums, method: str
) -> tuple[FrequencyGroup, ...]:
    """Computes a method's errors per decile of field-value frequency, by samples of the fit.

    The paper's Fig. 4 groups by positives instead.

    Args:
        n_fit_samples_V: samples in train ∪ dev per field value id; shape (n_values,), entry 0 is not read.
        sums: grouped sums of the test split.
        method: a method that they hold.

    Returns:
        The groups that hold a value, fewest fit samples first, and last the unseen values, even without test samples.

    Raises:
        SparsityError: the number of ids differs from that of the sums.
        MetricsError: the sums hold no such method.
    """
    if len(n_fit_samples_V) != sums.n_values:
        raise SparsityError(
            f"fit samples of {len(n_fit_samples_V)} field value ids, sums of {sums.n_values}: both count id 0, the "
            "unseen values; give those of the same field"
        )
    decile_V = assign_frequency_deciles(n_fit_samples_V)
    groups = [(decile, np.flatnonzero(decile_V == decile)) for decile in range(1, N_DECILES + 1)]
    described = [_describe_group(decile, ids, n_fit_samples_V, sums, method) for decile, ids in groups if len(ids)]
    unseen = _describe_group(None, np.zeros(1, np.int64), np.zeros(1, np.int64), sums, method)
    return (*described, unseen)


def describe_sparsity(n_fit_samples_V: Floats | Ints, sums: GroupedSums, method: str) -> list[dict[str, Any]]:
    """`compute_frequency_deciles` as JSON holds it."""
    return [asdict(group) for group in compute_frequency_deciles(n_fit_samples_V, sums, method)]


def _describe_group(
    decile: int | None, ids: Ints, n_fit_samples_V: Floats | Ints, sums: GroupedSums, method: str
) -> FrequencyGroup:
    own = sum_method(sums, method).select(ids)
    fit = n_fit_samples_V[ids]
    return FrequencyGroup(
        decile=decile,
        n_values=len(ids),
        min_fit_samples=int(fit.min()),
        max_fit_samples=int(fit.max()),
        n_samples=int(own.n_samples.sum()),
        n_responses=int(own.n_responses.sum()),
        field_rce=SUM_METRICS["field_rce"](own),
        truth_error=SUM_METRICS["truth_error"](own),
        truth_field_rce=SUM_METRICS["truth_field_rce"](own),
    )
