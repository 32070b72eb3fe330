"""One field's sums of the test split → its part of metrics.json and evaluation.json, for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from adacalib.cells.auc import average_value_aucs, compute_auc
from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, sum_method
from adacalib.cells.intervals import compute_paired_differences
from adacalib.cells.metrics import ReferenceLevels, compute_metrics
from adacalib.cells.reliability import compute_reliability
from adacalib.cells.score_cells import ScoreCells
from adacalib.cells.value_aucs import ValueAucs

TRUTH = "truth"
"""The true probabilities as if they were a method: what no method can do better than, on these very labels."""

PAIRED_METRICS = ("field_rce", "field_rce_terciles", "log_loss")
PAIRED_TRUTH_METRICS = ("truth_error", "truth_field_rce")
N_RELIABILITY_BINS = 12


@dataclass(frozen=True)
class EvaluationSums:
    """What the test split of one field was added up to; its size does not depend on the number of rows.

    Attributes:
        grouped: sums by (field value, tercile, jackknife group), of every method.
        value_aucs: method → AUC inside each field value.
        score_cells: method → its score cells, all field values pooled.
        shown_cells: field value id → method → its score cells there; of the few values that reliability is asked for.
    """

    grouped: GroupedSums
    value_aucs: Mapping[str, ValueAucs]
    score_cells: Mapping[str, ScoreCells]
    shown_cells: Mapping[int, Mapping[str, ScoreCells]] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods summed; with a truth, `truth` is one of them."""
        return self.grouped.methods


def describe_methods(sums: EvaluationSums, levels: ReferenceLevels, interval_level: float) -> dict[str, Any]:
    """Metrics of every method, keyed by method, see `metrics.compute_metrics`.

    Args:
        sums: of the test split.
        levels: floors and attainable levels of the field; where the truth is among the methods, its own Field-RCE
            stands beside them in every method as field_rce_truth_floor and field_rce_terciles_truth_floor.
        interval_level: of the intervals, in (0, 1).
    """
    if TRUTH in sums.methods:
        truth = sum_method(sums.grouped, TRUTH)
        levels = replace(
            levels,
            field_rce_truth_floor=SUM_METRICS["field_rce"](truth),
            field_rce_terciles_truth_floor=SUM_METRICS["field_rce_terciles"](truth),
        )
    described = {}
    for method in sums.methods:
        own = sums.score_cells[method]
        auc = compute_auc(own.cell, own.weight, own.response, own.n_samples, own.n_responses)
        field_auc = average_value_aucs(sums.value_aucs[method])
        described[method] = compute_metrics(sums.grouped, method, auc, field_auc, levels, interval_level)
    return described


def describe_differences(sums: GroupedSums, method: str, other: str, interval_level: float) -> dict[str, Any]:
    """Paired differences, method − other, per metric; None where not defined (see `compute_paired_difference`).

    Against the truth only where it is known. The AUCs have none: sums by group do not hold them.
    """
    metrics = PAIRED_METRICS if sums.truth_sum is None else (*PAIRED_METRICS, *PAIRED_TRUTH_METRICS)
    return {
        metric: None if found is None else asdict(found) | {"interval": [*found.interval]}
        for metric, found in compute_paired_differences(sums, method, other, metrics, interval_level).items()
    }


def describe_reliability(
    sums: EvaluationSums, methods: Sequence[str], field_value_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Reliability of every method over all samples (field_value_id None) and for the field values given.

    Args:
        field_value_ids: keys of `shown_cells`; one without test samples has no points.
    """
    described = []
    for value in (None, *field_value_ids):
        cells = sums.score_cells if value is None else sums.shown_cells[value]
        for method in methods:
            own = cells[method]
            reliability = compute_reliability(
                own.cell, own.weight, own.response, own.score_sum, own.n_samples, N_RELIABILITY_BINS
            )
            points = {name: array.tolist() for name, array in asdict(reliability).items()}
            described.append({"field_value_id": value, "method": method, **points})
    return described
