"""A method's sums per field value and tercile, and the metrics that need nothing else: one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from adacalib.cells.logit_cells import Floats, Ints

MIN_MEAN_TRUTH = 1e-9
"""Mean true probability up to which nothing is relative to it: far below any score (1e-7 to 1 - 1e-7), and differences
of sums leave residues of its size."""


@dataclass(frozen=True)
class MethodSums:
    """One method's sums per field value and tercile, groups added up; all arrays of shape (n_values, 3).

    The last two are None where the true probabilities are not known.
    """

    weight: Floats
    response: Floats
    score_sum: Floats
    log_loss_sum: Floats
    n_samples: Ints
    n_responses: Ints
    truth_sum: Floats | None
    truth_error_sum: Floats | None

    def subtract(self, other: MethodSums) -> MethodSums:
        """The sums without the samples of other, which must be a part of them."""
        names = [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]
        return replace(self, **{name: getattr(self, name) - getattr(other, name) for name in names})

    def select(self, field_value_ids: Ints) -> MethodSums:
        """The sums of some field values, in the order given; arrays of shape (number of ids, 3)."""
        names = [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]
        return replace(self, **{name: getattr(self, name)[field_value_ids] for name in names})


def compute_field_rce(weight: Floats, response: Floats, score_sum: Floats, n_responses: Ints) -> float | None:
    """Computes Field-RCE (Eq. 3) = Σ_z n_z·|Σp/Σy − 1| / Σ_z n_z over rows with at least one positive.

    Args:
        weight: n_z per row (a field value, or a field value's tercile), sum of sample weights; any shape.
        response: Σ w·y per row.
        score_sum: Σ w·p per row.
        n_responses: number of positives per row. It decides which rows count: differences of weighted sums leave
            residues such as 1e-17 where a count is exactly 0.

    Returns:
        Relative error, ≥ 0; None without any positive.
    """
    numerator, denominator = _sum_relative_errors(weight, response, score_sum, n_responses)
    return numerator / denominator if denominator > 0 else None


def _sum_relative_errors(weight: Floats, response: Floats, score_sum: Floats, n_responses: Ints) -> tuple[float, float]:
    counts = n_responses > 0
    n = weight[counts]
    return float(np.sum(n * np.abs(score_sum[counts] / response[counts] - 1))), float(np.sum(n))


def _divide(numerator: float, denominator: float) -> float | None:
    return float(numerator / denominator) if denominator > 0 else None


def _field_rce(sums: MethodSums) -> float | None:
    return compute_field_rce(sums.weight.sum(1), sums.response.sum(1), sums.score_sum.sum(1), sums.n_responses.sum(1))


def _field_rce_all_samples(sums: MethodSums) -> float | None:
    numerator, denominator = _sum_relative_errors(
        sums.weight.sum(1), sums.response.sum(1), sums.score_sum.sum(1), sums.n_responses.sum(1)
    )
    # without a positive no value has a relative error, so 0 would be praise for nothing
    return _divide(numerator, float(sums.weight.sum())) if denominator > 0 else None


def _field_rce_terciles(sums: MethodSums) -> float | None:
    return compute_field_rce(sums.weight, sums.response, sums.score_sum, sums.n_responses)


def _field_ece(sums: MethodSums) -> float | None:
    error = float(np.abs(sums.response.sum(1) - sums.score_sum.sum(1)).sum())
    return _divide(error, float(sums.weight.sum())) if sums.n_samples.any() else None


def _pcoc(sums: MethodSums) -> float | None:
    return _divide(float(sums.score_sum.sum()), float(sums.response.sum())) if sums.n_responses.any() else None


def _log_loss(sums: MethodSums) -> float | None:
    return _divide(float(sums.log_loss_sum.sum()), float(sums.weight.sum())) if sums.n_samples.any() else None


def _truth_error(sums: MethodSums) -> float | None:
    if sums.truth_sum is None or sums.truth_error_sum is None:
        return None
    truth = float(sums.truth_sum.sum())
    if not sums.n_samples.any() or truth <= MIN_MEAN_TRUTH * float(sums.weight.sum()):
        return None
    return float(sums.truth_error_sum.sum()) / truth


def _truth_field_rce(sums: MethodSums) -> float | None:
    if sums.truth_sum is None:
        return None
    weight, truth = sums.weight.sum(1), sums.truth_sum.sum(1)
    has_truth = (sums.n_samples.sum(1) > 0) & (truth > MIN_MEAN_TRUTH * weight)
    return compute_field_rce(weight, truth, sums.score_sum.sum(1), has_truth.astype(np.int64))


SUM_METRICS: dict[str, Callable[[MethodSums], float | None]] = {
    "field_rce": _field_rce,
    "field_rce_all_samples": _field_rce_all_samples,
    "field_rce_terciles": _field_rce_terciles,
    "field_ece": _field_ece,
    "pcoc": _pcoc,
    "log_loss": _log_loss,
    "truth_error": _truth_error,
    "truth_field_rce": _truth_field_rce,
}
"""The metrics that sums suffice for, each None where it is not defined: no sample, or (the first three and pcoc) no
positive, or (the last two) no true probabilities above 1e-9. truth_error is Σw|p − t|/Σw·t, t the true probability, and
truth_field_rce is Eq. 3 with t in place of the label, over all field values whose mean truth is above 1e-9."""
