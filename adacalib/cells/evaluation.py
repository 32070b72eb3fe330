"""One field's sums → its part of metrics.json and evaluation.json, for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from adacalib.cells.auc import compute_auc, compute_field_auc
from adacalib.cells.grouped_sums import GroupedSums
from adacalib.cells.intervals import compute_paired_difference
from adacalib.cells.metrics import ReferenceLevels, compute_metrics
from adacalib.cells.reliability import compute_reliability

Columns = Mapping[str, npt.NDArray[Any]]

PAIRED_METRICS = ("field_rce", "field_rce_terciles", "log_loss")
N_RELIABILITY_BINS = 12


def describe_methods(
    sums: GroupedSums, score_cells: Columns, methods: Sequence[str], levels: ReferenceLevels, interval_level: float
) -> dict[str, Any]:
    """Metrics of every method, keyed by method.

    Args:
        sums: grouped sums of the test split.
        score_cells: method, field_value_id, cell, weight, response, n_samples, n_responses.
        methods: those to describe; each must be in both.
        levels: floors and attainable levels of the field.
        interval_level: of the intervals, in (0, 1).
    """
    described = {}
    for method in methods:
        own = _select(score_cells, score_cells["method"] == method)
        counts = (own["weight"], own["response"], own["n_samples"], own["n_responses"])
        auc = compute_auc(own["cell"], *counts)
        field_auc = compute_field_auc(own["field_value_id"], own["cell"], *counts)
        described[method] = compute_metrics(sums, method, auc, field_auc, levels, interval_level)
    return described


def describe_differences(sums: GroupedSums, method: str, other: str, interval_level: float) -> dict[str, Any]:
    """Paired differences, method − other, per metric; None where not defined (see `compute_paired_difference`)."""
    described: dict[str, Any] = {}
    for metric in PAIRED_METRICS:
        difference = compute_paired_difference(sums, method, other, metric, interval_level)
        described[metric] = None if difference is None else asdict(difference) | {"interval": [*difference.interval]}
    return described


def describe_reliability(
    score_cells: Columns, methods: Sequence[str], field_value_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Reliability of every method over all samples (field_value_id None) and for the field values given.

    Args:
        score_cells: as in `describe_methods`, and score_sum.
    """
    described = []
    for value in (None, *field_value_ids):
        for method in methods:
            chosen = score_cells["method"] == method
            if value is not None:
                chosen = chosen & (score_cells["field_value_id"] == value)
            own = _select(score_cells, chosen)
            reliability = compute_reliability(
                own["cell"], own["weight"], own["response"], own["score_sum"], own["n_samples"], N_RELIABILITY_BINS
            )
            points = {name: array.tolist() for name, array in asdict(reliability).items()}
            described.append({"field_value_id": value, "method": method, **points})
    return described


def _select(columns: Columns, chosen: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    return {name: values[chosen] for name, values in columns.items()}
