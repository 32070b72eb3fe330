"""Metrics of one method: by hand, against the oracle's loops over raw rows, what must not matter, what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.auc import compute_auc, compute_field_auc
from adacalib.cells.grouped_sums import SUM_METRICS, compute_field_rce, sum_method
from adacalib.cells.metrics import (
    GroupedSums,
    MetricsError,
    ReferenceLevels,
    compute_field_value_rows,
    compute_metrics,
)
from tests import oracle_metrics as oracle
from tests.oracle_metrics import Row

N_VALUES, N_GROUPS = 5, 4

KEYS_OF_METRICS_JSON = {
    *("field_rce", "field_rce_noise_floor", "field_rce_attainable", "field_rce_all_samples"),
    *("field_rce_excluded_field_values", "field_rce_excluded_samples"),
    *("field_rce_terciles", "field_rce_terciles_noise_floor", "field_rce_terciles_attainable"),
    *("field_ece", "pcoc", "log_loss", "auc", "field_auc", "n_samples", "n_responses", "intervals"),
}


def make_sums(rows: list[Row]) -> GroupedSums:
    """One row of sums per raw row: whether rows are added up before must not matter."""
    weight = np.array([row["weight"] for row in rows], float)
    label = np.array([row["label"] for row in rows], np.int64)
    score = np.array([row["score"] for row in rows], float)
    return GroupedSums(
        field_value_id=np.array([row["value"] for row in rows], np.int64),
        tercile=np.array(oracle.tercile_of_each_row(rows), np.int64),
        group=np.array([row["group"] for row in rows], np.int64),
        weight=weight,
        response=weight * label,
        n_samples=np.ones(len(rows), np.int64),
        n_responses=label,
        score_sums={"m": weight * score},
        log_loss_sums={"m": -weight * np.log(np.where(label == 1, score, 1 - score))},
        n_values=N_VALUES,
        n_groups=N_GROUPS,
    )


def make_sums_with_truth(rows: list[Row]) -> GroupedSums:
    weight, truth, score = (np.array([row[name] for row in rows], float) for name in ("weight", "truth", "score"))
    error = weight * np.abs(score - truth)
    return dataclasses.replace(make_sums(rows), truth_sum=weight * truth, truth_error_sums={"m": error})


def make_row(
    value: int, label: int, score: float, weight: float = 1.0, cell: int = 0, group: int = 0, truth: float | None = None
) -> Row:
    row = {"value": value, "label": label, "score": score, "weight": weight, "cell": cell, "group": group}
    return row if truth is None else row | {"truth": truth}


AGAINST_TRUTH = {"truth_error", "truth_field_rce"}


ROWS = st.lists(
    st.builds(
        make_row,
        value=st.integers(0, N_VALUES - 1),
        label=st.integers(0, 1),
        score=st.floats(0.01, 0.99),
        weight=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
        cell=st.integers(-5, 5),
        group=st.integers(0, N_GROUPS - 1),
    ),
    min_size=1,
    max_size=40,
)


def compute(sums: GroupedSums, **changes: Any) -> dict[str, Any]:
    return compute_metrics(sums, "m", None, None, ReferenceLevels(**changes))


def test_by_hand() -> None:
    # value 0 (unseen): 2 samples, Σy = 1, Σp = .5 → |.5/1 − 1| = .5
    # value 1: 4 samples, Σy = 2, Σp = 3 → .5; value 2: 3 samples, no positive, Σp = .6: left out
    # value 3: 4 samples, Σy = 1, Σp = 1 → 0
    rows = [make_row(0, 1, 0.25), make_row(0, 0, 0.25)]
    rows += [make_row(1, label, 0.75) for label in (1, 1, 0, 0)]
    rows += [make_row(2, 0, 0.2) for _ in range(3)]
    rows += [make_row(3, label, 0.25) for label in (1, 0, 0, 0)]
    metrics = compute(make_sums(rows))
    assert metrics["field_rce"] == pytest.approx((2 * 0.5 + 4 * 0.5 + 0) / 10)
    assert metrics["field_rce_all_samples"] == pytest.approx(3 / 13)
    assert (metrics["field_rce_excluded_field_values"], metrics["field_rce_excluded_samples"]) == (1, 3)
    # |1 − .5| + |2 − 3| + .6 + 0 over 13 samples; Σp = 5.1 over Σy = 4
    assert metrics["field_ece"] == pytest.approx(2.1 / 13)
    assert metrics["pcoc"] == pytest.approx(5.1 / 4)
    assert metrics["unseen"] == {"n_samples": 2, "n_responses": 1, "score_sum": pytest.approx(0.5)}
    assert (metrics["n_samples"], metrics["n_responses"]) == (13, 4)


def test_terciles_by_hand() -> None:
    # one value, cells 0, 1, 2 of two samples each are terciles 0, 1, 2. The value's Σp = Σy = 3, but in terciles
    # Σy = 0, 1, 2 and Σp = 1, 1, 1: tercile 0 is left out, then 0 and |1/2 − 1| at equal weight
    labels = ((0, 0), (0, 1), (1, 1))
    rows = [make_row(1, label, 0.5, cell=cell) for cell, pair in enumerate(labels) for label in pair]
    metrics = compute(make_sums(rows))
    assert metrics["field_rce"] == pytest.approx(0, abs=1e-15)
    assert metrics["field_rce_terciles"] == pytest.approx(0.25)


@settings(deadline=None, max_examples=80)
@given(ROWS)
def test_same_as_oracle(rows: list[Row]) -> None:
    metrics = compute(make_sums(rows))
    for name, expected in oracle.metrics(rows, oracle.tercile_of_each_row(rows)).items():
        assert metrics[name] == (None if expected is None else pytest.approx(expected, rel=1e-10, abs=1e-12)), name


def test_against_the_truth_by_hand() -> None:
    # value 1: Σt = .2 + .4 = .6, Σp = .3 + .5 = .8, |p − t| .1 + .1; value 2, of weight 2 and without a positive:
    # Σw·t = .2, Σw·p = .6, Σw|p − t| = .4. Together .6 / .8; Field-RCE (2·|.8/.6 − 1| + 2·|.6/.2 − 1|) / 4
    rows = [make_row(1, 1, 0.3, truth=0.2), make_row(1, 0, 0.5, truth=0.4), make_row(2, 0, 0.3, weight=2.0, truth=0.1)]
    metrics = compute(make_sums_with_truth(rows))
    assert metrics["truth_error"] == pytest.approx(0.6 / 0.8)
    assert metrics["truth_field_rce"] == pytest.approx((2 / 3 + 4) / 4)


def test_errors_against_the_truth_cancel_inside_a_value_in_field_rce_only() -> None:
    rows = [make_row(1, 1, 0.3, truth=0.2), make_row(1, 0, 0.3, truth=0.4)]
    metrics = compute(make_sums_with_truth(rows))
    assert metrics["truth_field_rce"] == pytest.approx(0, abs=1e-15)
    assert metrics["truth_error"] == pytest.approx(0.2 / 0.6)


@pytest.mark.parametrize("truth", [0.0, 1e-12])
def test_a_value_that_never_responds_has_no_relative_error_against_the_truth(truth: float) -> None:
    rows = [make_row(1, 0, 0.3, truth=truth), make_row(2, 1, 0.5, truth=0.25)]
    metrics = compute(make_sums_with_truth(rows))
    # it is left out of Field-RCE, but its |p − t| = .3 counts
    assert metrics["truth_field_rce"] == pytest.approx(1.0)
    assert metrics["truth_error"] == pytest.approx((0.3 + 0.25) / 0.25)
    nowhere = compute(make_sums_with_truth([make_row(1, 0, 0.3, truth=truth)]))
    assert nowhere["truth_error"] is None and nowhere["truth_field_rce"] is None


@settings(deadline=None, max_examples=40)
@given(ROWS, st.integers(0, 1000))
def test_same_as_oracle_with_a_truth(rows: list[Row], seed: int) -> None:
    drawn = np.random.default_rng(seed).uniform(0.01, 0.99, len(rows))
    rows = [row | {"truth": float(t)} for row, t in zip(rows, drawn, strict=True)]
    metrics = compute(make_sums_with_truth(rows))
    expected = oracle.metrics(rows, oracle.tercile_of_each_row(rows))
    for name in AGAINST_TRUTH:
        assert metrics[name] == pytest.approx(expected[name], rel=1e-10), name
    perfect = compute(make_sums_with_truth([row | {"score": row["truth"]} for row in rows]))
    assert (perfect["truth_error"], perfect["truth_field_rce"]) == (0.0, 0.0)


@settings(deadline=None, max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_twice_is_weight_two(rows: list[Row], random: Any) -> None:
    expected = oracle.metrics(rows, oracle.tercile_of_each_row(rows))
    shuffled = rows.copy()
    random.shuffle(shuffled)
    doubled = [{**row, "weight": 2 * row["weight"]} for row in rows]
    for variant in (shuffled, rows + rows, doubled):
        metrics = compute(make_sums(variant))
        for name, value in expected.items():
            assert metrics[name] == (None if value is None else pytest.approx(value, rel=1e-10, abs=1e-12)), name


@settings(deadline=None, max_examples=40)
@given(ROWS)
def test_field_rce_is_0_where_each_score_is_its_values_mean(rows: list[Row]) -> None:
    for value in range(N_VALUES):
        same = [row for row in rows if row["value"] == value]
        for row in same:
            row["score"] = sum(r["weight"] * r["label"] for r in same) / sum(r["weight"] for r in same)
    sums = make_sums([{**row, "score": np.clip(row["score"], 1e-15, 1 - 1e-15)} for row in rows])
    metrics = compute(sums)
    if sums.n_responses.any():
        assert metrics["field_rce"] == pytest.approx(0, abs=1e-12)
        assert metrics["pcoc"] == pytest.approx(1)
    assert metrics["field_ece"] == pytest.approx(0, abs=1e-12)


def test_keys_and_json() -> None:
    generator = np.random.default_rng(1)
    rows = [
        make_row(int(v), int(y), 0.1 + 0.2 * v, cell=int(c), group=int(g), truth=0.1 + 0.1 * v)
        for v, c, y, g in zip(*generator.integers(0, [[4], [9], [2], [4]], (4, 80)), strict=True)
    ]
    sums = make_sums_with_truth(rows)
    cell = np.array([row["cell"] for row in rows])
    auc = compute_auc(cell, sums.weight, sums.response)
    field_auc = compute_field_auc(sums.field_value_id, cell, sums.weight, sums.response)
    levels = ReferenceLevels(0.1, 0.2, 0.3, 0.4)
    metrics = compute_metrics(sums, "m", auc, field_auc, levels)
    assert set(metrics) >= KEYS_OF_METRICS_JSON
    assert auc is not None and field_auc is not None
    assert (metrics["auc"], metrics["field_auc"]) == (auc.auc, field_auc.auc)
    assert (metrics["field_rce_noise_floor"], metrics["field_rce_attainable"]) == (0.1, 0.2)
    assert (metrics["field_rce_terciles_noise_floor"], metrics["field_rce_terciles_attainable"]) == (0.3, 0.4)
    assert set(metrics["intervals"]) == {*SUM_METRICS, "auc", "field_auc"}
    for name, (low, high) in metrics["intervals"].items():
        assert 0 <= low <= metrics[name] <= high, name
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(label: int) -> None:
    rows = [make_row(value, label, 0.3, group=group) for value in (0, 1) for group in range(4)]
    metrics = compute(make_sums(rows))
    undefined = {"field_rce", "field_rce_all_samples", "field_rce_terciles", "pcoc"} if label == 0 else set()
    assert {name for name in SUM_METRICS if metrics[name] is None} == undefined | AGAINST_TRUTH
    assert metrics["auc"] is None and metrics["field_auc"] is None
    assert set(metrics["intervals"]) == set(SUM_METRICS) - undefined - AGAINST_TRUTH
    json.dumps(metrics, allow_nan=False)


def test_no_rows() -> None:
    metrics = compute(dataclasses.replace(make_sums([make_row(0, 1, 0.5)]), **empty_columns()))
    assert all(metrics[name] is None for name in SUM_METRICS)
    assert (metrics["n_samples"], metrics["intervals"]) == (0, {})


def empty_columns() -> dict[str, Any]:
    floats, ints = np.zeros(0), np.zeros(0, np.int64)
    return {
        **{name: ints for name in ("field_value_id", "tercile", "group", "n_samples", "n_responses")},
        **{"weight": floats, "response": floats, "score_sums": {"m": floats}, "log_loss_sums": {"m": floats}},
    }


def test_field_value_rows() -> None:
    rows = [make_row(3, 1, 0.5, weight=2.0, cell=1), make_row(1, 0, 0.25), make_row(3, 0, 0.1, cell=-1)]
    by_value = compute_field_value_rows(make_sums(rows), "m")
    np.testing.assert_array_equal(by_value.field_value_id, [1, 3])
    np.testing.assert_allclose(by_value.weight, [1, 3])
    np.testing.assert_allclose(by_value.response, [0, 2])
    np.testing.assert_allclose(by_value.score_sum, [0.25, 1.1])
    np.testing.assert_array_equal(by_value.n_samples, [1, 2])
    np.testing.assert_array_equal(by_value.n_responses, [0, 1])


def test_count_of_positives_decides_not_the_rounded_sum() -> None:
    # without a positive, .1 + .2 − .3 leaves 5.6e-17 of a response: no relative error of 1e16
    residue = np.array([0.1 + 0.2 - 0.3, 1.0])
    assert residue[0] > 0
    assert compute_field_rce(np.ones(2), residue, np.array([0.5, 1.5]), np.array([0, 1])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tercile": np.array([3, 0])}, "tercile runs from 0 to 3, allowed are 0 to 2"),
        ({"field_value_id": np.array([-1, 0])}, "field_value_id runs from -1 to 0, allowed are 0 to 4"),
        ({"group": np.array([0, 9])}, "group runs from 0 to 9, allowed are 0 to 3"),
        ({"weight": np.array([0.0, 1.0])}, "weight is 0.0 in a row: only positive"),
        ({"score_sums": {"m": np.array([np.nan, 1.0])}}, r"score_sums\[m\] is NaN or infinite in 1 rows"),
        ({"log_loss_sums": {"m": np.array([np.inf, 1.0])}}, r"log_loss_sums\[m\] is NaN or infinite in 1 rows"),
        ({"log_loss_sums": {}}, r"score_sums of \['m'\], log_loss_sums of \[\]"),
        ({"n_responses": np.array([0, 0])}, "response and n_responses disagree"),
        ({"response": np.zeros(3)}, "response has 3 rows, weight has 2"),
        ({"tercile": np.array([3, 0]), "group": np.array([0, 9])}, "tercile runs .*; group runs"),
        ({"truth_sum": np.ones(2)}, r"truth_error_sums of \[\] where \['m'\] are expected"),
        ({"truth_error_sums": {"m": np.ones(2)}}, r"truth_error_sums of \['m'\] where \[\] are expected"),
        (
            {"truth_sum": np.ones(2), "truth_error_sums": {"m": np.array([np.nan, 1.0])}},
            r"truth_error_sums\[m\] is NaN",
        ),
        ({"truth_sum": np.ones(3), "truth_error_sums": {"m": np.ones(2)}}, "truth_sum has 3 rows, weight has 2"),
    ],
)
def test_impossible_sums_are_refused(changes: dict[str, Any], message: str) -> None:
    sums = make_sums([make_row(0, 1, 0.5), make_row(1, 0, 0.5)])
    with pytest.raises(MetricsError, match=message):
        dataclasses.replace(sums, **changes)


def test_unknown_method_is_refused() -> None:
    sums = make_sums([make_row(0, 1, 0.5)])
    for function in (sum_method, compute_field_value_rows):
        with pytest.raises(MetricsError, match="no sums of a method 'other'; methods summed: m"):
            function(sums, "other")
