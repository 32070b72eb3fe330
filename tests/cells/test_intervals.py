"""Jackknife intervals and paired differences: by hand, against the oracle's loop over raw rows, coverage, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, MetricsError, iterate_leave_outs
from adacalib.cells.intervals import (
    compute_jackknife_error,
    compute_normal_interval,
    compute_paired_difference,
    compute_paired_differences,
    compute_sum_intervals,
)
from tests import oracle_metrics as oracle
from tests.oracle_metrics import Row

Z_95 = 1.959963984540054


def make_rows(seed: int, n: int = 150, n_groups: int = 6) -> tuple[list[Row], list[float]]:
    """Rows of three field values, and a second method's scores."""
    generator = np.random.default_rng(seed)
    value = generator.integers(0, 3, n)
    score = generator.uniform(0.1, 0.6, n)
    columns = {
        "value": value,
        "cell": np.floor(score * 20).astype(int),
        "group": generator.integers(0, n_groups, n),
        "weight": generator.choice([0.3, 1.0, 2.5], n),
        "label": generator.binomial(1, np.clip(score * (0.6 + 0.4 * value), 0, 1)),
        "score": score,
        "truth": np.clip(score * (0.6 + 0.4 * value), 0, 1),
    }
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    return rows, generator.uniform(0.1, 0.6, n).tolist()


def make_sums(rows: list[Row], second: list[float], n_groups: int = 6) -> GroupedSums:
    weight = np.array([row["weight"] for row in rows])
    label = np.array([row["label"] for row in rows])
    scores = {"a": np.array([row["score"] for row in rows]), "b": np.array(second)}
    truth = {"truth_sum": None, "truth_error_sums": {}}
    if "truth" in rows[0]:
        t = np.array([row["truth"] for row in rows])
        errors = {name: weight * np.abs(p - t) for name, p in scores.items()}
        truth = {"truth_sum": weight * t, "truth_error_sums": errors}
    return GroupedSums(
        field_value_id=np.array([row["value"] for row in rows]),
        tercile=np.array(oracle.tercile_of_each_row(rows)),
        group=np.array([row["group"] for row in rows]),
        weight=weight,
        response=weight * label,
        n_samples=np.ones(len(rows), np.int64),
        n_responses=label,
        score_sums={name: weight * p for name, p in scores.items()},
        log_loss_sums={name: -weight * np.log(np.where(label == 1, p, 1 - p)) for name, p in scores.items()},
        n_values=3,
        n_groups=n_groups,
        **truth,
    )


def test_error_by_hand() -> None:
    # mean 2, squares 1 + 0 + 1 = 2, times (3 − 1)/3
    assert compute_jackknife_error([1.0, 2.0, 3.0]) == pytest.approx(math.sqrt(4 / 3))


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    # leaving one of n out of a mean gives exactly s/sqrt(n)
    x = np.random.default_rng(0).normal(size=30)
    leave_outs = [float((x.sum() - x_i) / 29) for x_i in x]
    assert compute_jackknife_error(leave_outs) == pytest.approx(x.std(ddof=1) / math.sqrt(30))


@pytest.mark.parametrize("leave_outs", [[], [0.5], [0.5, None, 0.6]])
def test_no_error_without_two_defined_groups(leave_outs: list[float | None]) -> None:
    assert compute_jackknife_error(leave_outs) is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_intervals_same_as_oracle(seed: int) -> None:
    rows, second = make_rows(seed)
    estimates = oracle.metrics(rows, oracle.tercile_of_each_row(rows))
    errors = oracle.jackknife_errors(rows)
    intervals = compute_sum_intervals(make_sums(rows, second), "a", 0.95)
    assert set(intervals) == set(SUM_METRICS)
    for name, (low, high) in intervals.items():
        assert high == pytest.approx(estimates[name] + Z_95 * errors[name], rel=1e-9), name
        assert low == pytest.approx(max(0.0, estimates[name] - Z_95 * errors[name]), rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("metric", list(SUM_METRICS))
def test_paired_difference_same_as_oracle(metric: str) -> None:
    rows, second = make_rows(4)
    terciles = oracle.tercile_of_each_row(rows)
    others = [{**row, "score": p} for row, p in zip(rows, second, strict=True)]
    expected = oracle.metrics(rows, terciles)[metric] - oracle.metrics(others, terciles)[metric]
    error = oracle.jackknife_errors(rows, second)[metric]
    sums = make_sums(rows, second)
    result = compute_paired_difference(sums, "a", "b", metric)
    assert result is not None
    assert result.difference == pytest.approx(expected, rel=1e-9)
    assert result.standard_error == pytest.approx(error, rel=1e-9)
    assert result.interval == pytest.approx((expected - Z_95 * error, expected + Z_95 * error), rel=1e-9)
    assert result.p_value == pytest.approx(math.erfc(abs(expected) / error / math.sqrt(2)), rel=1e-9)
    reverse = compute_paired_difference(sums, "b", "a", metric)
    assert reverse is not None
    assert (reverse.difference, reverse.p_value) == (-result.difference, pytest.approx(result.p_value))


def test_a_method_does_not_differ_from_itself() -> None:
    rows, second = make_rows(5)
    result = compute_paired_difference(make_sums(rows, second), "a", "a", "field_rce")
    assert result is not None
    assert (result.difference, result.standard_error, result.interval, result.p_value) == (0.0, 0.0, (0.0, 0.0), 1.0)


def test_level_widens_the_interval() -> None:
    rows, second = make_rows(6)
    sums = make_sums(rows, second)
    low, high = compute_sum_intervals(sums, "a", 0.5)["log_loss"]
    low_wide, high_wide = compute_sum_intervals(sums, "a", 0.99)["log_loss"]
    assert low_wide < low < high < high_wide


def test_empty_groups_are_left_out() -> None:
    rows, second = make_rows(7)
    few, many = make_sums(rows, second), make_sums(rows, second, n_groups=50)
    assert len(list(iterate_leave_outs(many, "a"))) == 6
    assert compute_sum_intervals(few, "a", 0.95) == compute_sum_intervals(many, "a", 0.95)


def test_one_group_has_no_interval() -> None:
    rows, second = make_rows(8, n_groups=1)
    sums = make_sums(rows, second)
    assert compute_sum_intervals(sums, "a", 0.95) == {}
    assert compute_paired_difference(sums, "a", "b", "log_loss") is None


def test_all_positives_in_one_group_have_no_interval_of_what_needs_them() -> None:
    rows, second = make_rows(9)
    for row in rows:
        row["label"] = int(row["label"] and row["group"] == 2)
    found = set(compute_sum_intervals(make_sums(rows, second), "a", 0.95))
    assert found == {"field_ece", "log_loss", "truth_error", "truth_field_rce"}


def test_all_truth_in_one_group_has_no_interval_against_it() -> None:
    rows, second = make_rows(9)
    for row in rows:
        row["truth"] *= row["group"] == 2
    # without group 2 the truth is 0 but for the rounding of differences, which must not count as one
    assert not {"truth_error", "truth_field_rce"} & set(compute_sum_intervals(make_sums(rows, second), "a", 0.95))


def test_without_truth_nothing_is_said_against_it() -> None:
    rows, second = make_rows(9)
    sums = make_sums([{k: v for k, v in row.items() if k != "truth"} for row in rows], second)
    assert not {"truth_error", "truth_field_rce"} & set(compute_sum_intervals(sums, "a", 0.95))
    assert compute_paired_difference(sums, "a", "b", "truth_error") is None


def test_several_differences_at_once_are_those_one_by_one() -> None:
    rows, second = make_rows(11)
    sums = make_sums(rows, second)
    found = compute_paired_differences(sums, "a", "b", list(SUM_METRICS), 0.9)
    assert found == {metric: compute_paired_difference(sums, "a", "b", metric, 0.9) for metric in SUM_METRICS}


def test_leaving_a_values_only_positive_out_leaves_the_value_out() -> None:
    # weights of .1 and .2 leave rounding in the differences of sums, which must not count as a positive
    rows = [
        {"value": 1, "cell": 0, "group": g, "weight": w, "label": y, "score": 0.5}
        for g, w, y in ((0, 0.1, 0), (1, 0.2, 1), (2, 0.3, 0), (3, 0.7, 0))
    ]
    rows += [{"value": 2, "cell": 0, "group": g, "weight": 1.0, "label": g % 2, "score": 0.4} for g in range(4)]
    low, high = compute_sum_intervals(make_sums(rows, [0.5] * len(rows)), "a", 0.95)["field_rce"]
    estimate = oracle.metrics(rows, oracle.tercile_of_each_row(rows))["field_rce"]
    assert high == pytest.approx(estimate + Z_95 * oracle.jackknife_errors(rows)["field_rce"])
    assert 0 <= low < high < 10


def test_intervals_cover_the_truth() -> None:
    # 300 data sets of 40 groups: log loss of a constant score, whose truth is the cross-entropy itself
    generator = np.random.default_rng(12)
    truth = -(0.3 * math.log(0.25) + 0.7 * math.log(0.75))
    zeros, n = np.zeros(40, np.int64), np.full(40, 20)
    covered = 0
    for _ in range(300):
        y = generator.binomial(20, 0.3, 40)
        loss = -(y * math.log(0.25) + (20 - y) * math.log(0.75))
        scores = {"a": n * 0.25}
        sums = GroupedSums(zeros, zeros, np.arange(40), n * 1.0, y * 1.0, n, y, scores, {"a": loss}, 1, 40)
        low, high = compute_sum_intervals(sums, "a", 0.95)["log_loss"]
        covered += low <= truth <= high
    # 95 % of 300 is 285, with a standard deviation of 3.8
    assert 270 <= covered <= 297


def test_refusals() -> None:
    rows, second = make_rows(10)
    sums = make_sums(rows, second)
    with pytest.raises(MetricsError, match="metric 'auc' has no paired difference; those that have: field_rce,"):
        compute_paired_difference(sums, "a", "b", "auc")
    with pytest.raises(MetricsError, match="no sums of a method 'c'; methods summed: a, b"):
        compute_paired_difference(sums, "a", "c", "pcoc")
    with pytest.raises(MetricsError, match="interval level 95"):
        compute_normal_interval(0.1, 0.01, 95)
