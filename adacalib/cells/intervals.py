"""Confidence intervals and paired differences of the metrics that sums suffice for: delete-a-group jackknife.

Each of G groups of samples is left out once; with θ_g the metric without group g, the variance of the metric is
(G − 1)/G · Σ (θ_g − mean θ)² (Kott 2001, "The delete-a-group jackknife"). A percentile bootstrap is not used:
resampling adds noise to |Σp/Σy − 1| once more and so shifts Field-RCE upwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, MetricsError, iterate_leave_outs, sum_method


@dataclass(frozen=True)
class PairedDifference:
    """One metric of method a minus the same metric of method b on the same samples.

    Attributes:
        difference: a − b, in the metric's unit; negative means a is lower.
        standard_error: jackknife standard error of the difference, ≥ 0.
        interval: (low, high) at the level asked for; not clipped, a difference may be negative.
        p_value: two-sided, normal approximation, of no difference.
    """

    difference: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float


def compute_jackknife_error(leave_outs: Sequence[float | None]) -> float | None:
    """Computes the standard error of a metric from its values without each group.

    Args:
        leave_outs: the metric without each group that occurs; None where it is not defined.

    Returns:
        Standard error in the metric's unit; None with fewer than two groups, or where the metric is not defined
        without one of them (the only positive lies in that group): then its spread is not known.
    """
    estimates = [estimate for estimate in leave_outs if estimate is not None]
    n_groups = len(leave_outs)
    if n_groups < 2 or len(estimates) < n_groups:
        return None
    return math.sqrt((n_groups - 1) / n_groups * float(np.sum((np.array(estimates) - np.mean(estimates)) ** 2)))


def compute_normal_interval(
    estimate: float, standard_error: float, level: float, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Computes estimate ± z·standard error, clipped to the metric's own range [low, high].

    Args:
        level: share of intervals that hold the truth, in (0, 1): 0.95 means z = 1.96.

    Raises:
        MetricsError: level is not inside (0, 1).
    """
    if not 0 < level < 1:
        raise MetricsError(f"interval level {level}: the share of intervals that hold the truth, inside (0, 1)")
    half = float(ndtri((1 + level) / 2)) * standard_error
    return max(estimate - half, low), min(estimate + half, high)


def compute_sum_intervals(sums: GroupedSums, method: str, level: float) -> dict[str, tuple[float, float]]:
    """Computes the jackknife interval of every metric in `SUM_METRICS` for one method.

    Returns:
        (low, high) per metric, low at least 0; a metric that has none (see `compute_jackknife_error`) is absent.

    Raises:
        MetricsError: an unknown method, or a level outside (0, 1).
    """
    total = sum_method(sums, method)
    leave_outs: dict[str, list[float | None]] = {metric: [] for metric in SUM_METRICS}
    for part in iterate_leave_outs(sums, method):
        for metric, compute in SUM_METRICS.items():
            leave_outs[metric].append(compute(part))
    intervals = {}
    for metric, compute in SUM_METRICS.items():
        estimate, error = compute(total), compute_jackknife_error(leave_outs[metric])
        if estimate is not None and error is not None:
            intervals[metric] = compute_normal_interval(estimate, error, level, low=0.0)
    return intervals


def compute_paired_difference(
    sums: GroupedSums, a: str, b: str, metric: str, level: float = 0.95
) -> PairedDifference | None:
    """Compares two methods on the same samples: a's metric minus b's, with the difference itself jackknifed.

    Both methods see the same groups, so the noise that they share (the labels') cancels, as it does not between two
    separate intervals.

    Args:
        a: method, first of the difference.
        b: method subtracted.
        metric: one of `SUM_METRICS`.
        level: of the interval, in (0, 1).

    Returns:
        The difference; None where the metric or the spread of the difference is not defined. Equal methods have
        standard error 0 and p value 1; a difference without any spread has p value 0.

    Raises:
        MetricsError: an unknown method or metric, or a level outside (0, 1).
    """
    return compute_paired_differences(sums, a, b, [metric], level)[metric]


def compute_paired_differences(
    sums: GroupedSums, a: str, b: str, metrics: Sequence[str], level: float = 0.95
) -> dict[str, PairedDifference | None]:
    """Compares two methods in several metrics, each group left out once for all of them.

    Args:
        metrics: names from `SUM_METRICS`; the others are as in `compute_paired_difference`.

    Returns:
        What `compute_paired_difference` gives, per metric.

    Raises:
        MetricsError: an unknown method or metric, or a level outside (0, 1).
    """
    for metric in metrics:
        if metric not in SUM_METRICS:
            known = ", ".join(SUM_METRICS)
            raise MetricsError(f"metric {metric!r} has no paired difference; those that have: {known}")
    totals = (sum_method(sums, a), sum_method(sums, b))
    parts = list(zip(iterate_leave_outs(sums, a), iterate_leave_outs(sums, b), strict=True))
    found: dict[str, PairedDifference | None] = {}
    for metric in metrics:
        compute = SUM_METRICS[metric]
        difference = _subtract(compute(totals[0]), compute(totals[1]))
        error = compute_jackknife_error([_subtract(compute(part_a), compute(part_b)) for part_a, part_b in parts])
        if difference is None or error is None:
            found[metric] = None
        else:
            interval = compute_normal_interval(difference, error, level)
            found[metric] = PairedDifference(difference, error, interval, _compute_p_value(difference, error))
    return found


def _subtract(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _compute_p_value(difference: float, standard_error: float) -> float:
    if difference == 0:
        return 1.0
    return float(2 * ndtr(-abs(difference) / standard_error)) if standard_error > 0 else 0.0
