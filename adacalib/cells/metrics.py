"""Metrics of one method on the test split of one field, as they stand in metrics.json.

Numbers only: an undefined metric is None (JSON null), never NaN.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adacalib.cells.auc import AucEstimate
from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, MethodSums, MetricsError, sum_method
from adacalib.cells.intervals import compute_normal_interval, compute_sum_intervals
from adacalib.cells.logit_cells import Floats, Ints

__all__ = [
    "FieldValueRows",
    "GroupedSums",
    "MetricsError",
    "ReferenceLevels",
    "compute_field_value_rows",
    "compute_metrics",
]


@dataclass(frozen=True)
class ReferenceLevels:
    """What Field-RCE would be if the reference scores were the truth; one per test set and field, see `floors`.

    Attributes:
        field_rce_noise_floor: expected Field-RCE of the truth itself; None where it is not defined or not computed.
        field_rce_attainable: mean Field-RCE of a correctly specified calibrator fitted on as many rows.
        field_rce_terciles_noise_floor: the floor of Field-RCE over (field value × tercile).
        field_rce_terciles_attainable: the attainable level of the same.
        field_rce_truth_floor: Field-RCE of the true probabilities on the very labels of this test set; None where
            they are not known. Unlike the noise floor no expectation, and of the truth itself, not of a reference.
        field_rce_terciles_truth_floor: the same over (field value × tercile).
    """

    field_rce_noise_floor: float | None = None
    field_rce_attainable: float | None = None
    field_rce_terciles_noise_floor: float | None = None
    field_rce_terciles_attainable: float | None = None
    field_rce_truth_floor: float | None = None
    field_rce_terciles_truth_floor: float | None = None


@dataclass(frozen=True)
class FieldValueRows:
    """One method's sums, one row per field value id that has test samples, ids ascending.

    Attributes:
        field_value_id: dense id; 0 is unseen values.
        weight: sum of sample weights.
        response: Σ w·y.
        score_sum: Σ w·p.
        n_samples: number of rows of the table.
        n_responses: number of rows with label 1.
    """

    field_value_id: Ints
    weight: Floats
    response: Floats
    score_sum: Floats
    n_samples: Ints
    n_responses: Ints


def compute_field_value_rows(sums: GroupedSums, method: str) -> FieldValueRows:
    """Adds up one method's sums per field value.

    Raises:
        MetricsError: the sums hold no such method.
    """
    total = sum_method(sums, method)
    n_samples = total.n_samples.sum(1)
    ids = np.flatnonzero(n_samples)
    return FieldValueRows(
        field_value_id=ids,
        weight=total.weight.sum(1)[ids],
        response=total.response.sum(1)[ids],
        score_sum=total.score_sum.sum(1)[ids],
        n_samples=n_samples[ids],
        n_responses=total.n_responses.sum(1)[ids],
    )


def compute_metrics(
    sums: GroupedSums,
    method: str,
    auc: AucEstimate | None,
    field_auc: AucEstimate | None,
    levels: ReferenceLevels,
    interval_level: float = 0.95,
) -> dict[str, Any]:
    """Computes the metrics of one method, ready for metrics.json.

    Args:
        sums: grouped sums of the test split.
        method: a method that the sums hold.
        auc: from `auc.compute_auc` on the method's own score cells; None where there is one class only.
        field_auc: from `auc.average_value_aucs`, over the field values' own AUCs.
        levels: floors and attainable levels, the same for every method.
        interval_level: share of intervals that hold the truth, in (0, 1).

    Returns:
        field_rce, field_rce_terciles and field_rce_all_samples (relative errors, ≥ 0), their noise floors and
        attainable levels, field_ece (probability), pcoc (ratio), log_loss (natural logarithm), truth_error and
        truth_field_rce (relative errors against the true probabilities, see `SUM_METRICS`), auc, field_auc,
        n_samples and n_responses (samples); how many field values and samples Field-RCE and Field-AUC leave out
        (no positive; one class); the AUCs' cell errors; `unseen`: samples, responses and score sum of id 0, which is
        one row of the sums too; `intervals`: [low, high] per metric that has one, by the delete-a-group jackknife
        and, for the AUCs, DeLong. A metric that is not defined (no positive, one class, no truth)
        is None.

    Raises:
        MetricsError: the sums hold no such method, or interval_level is outside (0, 1).
    """
    total = sum_method(sums, method)
    without_positive = (total.n_samples.sum(1) > 0) & (total.n_responses.sum(1) == 0)
    intervals = {name: list(pair) for name, pair in compute_sum_intervals(sums, method, interval_level).items()}
    for name, estimate in (("auc", auc), ("field_auc", field_auc)):
        if estimate is not None:
            intervals[name] = list(
                compute_normal_interval(estimate.auc, estimate.standard_error, interval_level, low=0.0, high=1.0)
            )
    return {
        **{metric: compute(total) for metric, compute in SUM_METRICS.items()},
        **asdict(levels),
        "field_rce_excluded_field_values": int(np.count_nonzero(without_positive)),
        "field_rce_excluded_samples": int(total.n_samples.sum(1)[without_positive].sum()),
        **_describe_auc("auc", auc),
        **_describe_auc("field_auc", field_auc),
        "field_auc_excluded_field_values": None if field_auc is None else field_auc.n_values_left_out,
        "field_auc_excluded_samples": None if field_auc is None else field_auc.n_samples_left_out,
        "n_samples": int(total.n_samples.sum()),
        "n_responses": int(total.n_responses.sum()),
        "unseen": _describe_unseen(total),
        "intervals": intervals,
    }


def _describe_auc(name: str, estimate: AucEstimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_cell_error": None}
    return {name: estimate.auc, f"{name}_cell_error": estimate.cell_error}


def _describe_unseen(total: MethodSums) -> dict[str, Any]:
    return {
        "n_samples": int(total.n_samples[0].sum()),
        "n_responses": int(total.n_responses[0].sum()),
        "score_sum": float(total.score_sum[0].sum()),
    }
