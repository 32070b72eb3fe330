"""A field's part of metrics.json and evaluation.json from sums in memory: what is handed on, with and without truth."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.auc import compute_field_auc
from adacalib.cells.evaluation import EvaluationSums, describe_differences, describe_methods, describe_reliability
from adacalib.cells.grouped_sums import GroupedSums, MetricsError
from adacalib.cells.intervals import compute_paired_difference
from adacalib.cells.metrics import ReferenceLevels
from adacalib.cells.score_cells import ScoreCells, assign_score_cell
from adacalib.cells.value_aucs import compute_value_aucs
from tests import oracle_metrics as oracle

N_VALUES = 3


def draw_rows(seed: int, n: int = 120) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    truth = generator.uniform(0.1, 0.9, n)
    return {
        "value": generator.integers(0, N_VALUES, n),
        "group": generator.integers(0, 5, n),
        "label": generator.binomial(1, truth),
        "scores": {"a": generator.uniform(0.1, 0.9, n), "b": np.clip(truth * 1.1, 0, 0.95), "truth": truth},
    }


def make_sums(rows: dict[str, Any], methods: tuple[str, ...] = ("a", "b", "truth")) -> EvaluationSums:
    """Sums of rows of weight 1 and of one tercile; the first value's cells are shown."""
    label, scores = rows["label"], {method: rows["scores"][method] for method in methods}
    one = np.ones(len(label))
    truth = rows["scores"]["truth"]
    has_truth = "truth" in methods
    grouped = GroupedSums(
        field_value_id=rows["value"],
        tercile=np.zeros(len(label), np.int64),
        group=rows["group"],
        weight=one,
        response=label * 1.0,
        n_samples=one.astype(np.int64),
        n_responses=label,
        score_sums=scores,
        log_loss_sums={name: -np.log(np.where(label == 1, p, 1 - p)) for name, p in scores.items()},
        n_values=N_VALUES,
        n_groups=5,
        truth_sum=truth if has_truth else None,
        truth_error_sums={name: np.abs(p - truth) for name, p in scores.items()} if has_truth else {},
    )
    return EvaluationSums(
        grouped,
        {
            name: compute_value_aucs(rows["value"], assign_score_cell(p, 512), one, label * 1.0)
            for name, p in scores.items()
        },
        {name: make_cells(p, label) for name, p in scores.items()},
        {0: {name: make_cells(p[rows["value"] == 0], label[rows["value"] == 0]) for name, p in scores.items()}},
    )


def make_cells(score: np.ndarray, label: np.ndarray) -> ScoreCells:
    one = np.ones(len(label))
    counts = one.astype(np.int64)
    return ScoreCells(assign_score_cell(score, 512), one, label * 1.0, score, counts, label)


def test_truth_floor_by_hand() -> None:
    # value 0: two rows of truth .25, one positive: |.5/1 − 1| = .5; value 1: two of truth .5, one positive: 0
    rows = {
        "value": np.array([0, 0, 1, 1]),
        "group": np.array([0, 1, 0, 1]),
        "label": np.array([1, 0, 1, 0]),
        "scores": {"a": np.full(4, 0.5), "b": np.full(4, 0.5), "truth": np.array([0.25, 0.25, 0.5, 0.5])},
    }
    described = describe_methods(make_sums(rows), ReferenceLevels(0.1, 0.2, 0.3, 0.4), 0.95)
    assert list(described) == ["a", "b", "truth"]
    for metrics in described.values():
        assert (metrics["field_rce_truth_floor"], metrics["field_rce_terciles_truth_floor"]) == (0.25, 0.25)
        assert (metrics["field_rce_noise_floor"], metrics["field_rce_terciles_attainable"]) == (0.1, 0.4)
    # Σ|.5 − t| = .5 over Σt = 1.5; Field-RCE against it (2·|1/.5 − 1| + 0)/4
    assert described["a"]["truth_error"] == pytest.approx(1 / 3)
    assert described["a"]["truth_field_rce"] == pytest.approx(0.5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_metrics_are_those_of_the_rows(seed: int) -> None:
    rows = draw_rows(seed)
    described = describe_methods(make_sums(rows), ReferenceLevels(), 0.95)
    as_rows = [
        {"value": v, "weight": 1.0, "label": y, "score": p, "truth": t}
        for v, y, p, t in zip(rows["value"], rows["label"], rows["scores"]["a"], rows["scores"]["truth"], strict=True)
    ]
    for name, expected in oracle.metrics(as_rows, [0] * len(as_rows)).items():
        assert described["a"][name] == pytest.approx(expected, rel=1e-10), name
    assert described["truth"]["truth_error"] == 0.0
    positives, negatives = (assign_score_cell(rows["scores"]["a"][rows["label"] == y], 512).tolist() for y in (1, 0))
    assert described["a"]["auc"] == pytest.approx(oracle.auc(positives, negatives), rel=1e-12)
    field_auc = compute_field_auc(
        rows["value"], assign_score_cell(rows["scores"]["a"], 512), np.ones(120), rows["label"] * 1.0
    )
    assert field_auc is not None and described["a"]["field_auc"] == field_auc.auc
    json.dumps(described, allow_nan=False)


def test_differences_against_the_truth_only_where_it_is_known() -> None:
    rows = draw_rows(5)
    with_truth, without = make_sums(rows).grouped, make_sums(rows, ("a", "b")).grouped
    names = {"field_rce", "field_rce_terciles", "log_loss"}
    assert set(describe_differences(without, "a", "b", 0.95)) == names
    found = describe_differences(with_truth, "a", "b", 0.95)
    assert set(found) == names | {"truth_error", "truth_field_rce"}
    expected = compute_paired_difference(with_truth, "a", "b", "truth_error", 0.95)
    assert expected is not None and found["truth_error"]["difference"] == expected.difference > 0
    assert found["truth_error"]["interval"] == list(expected.interval)
    json.dumps(found, allow_nan=False)


def test_undefined_difference_is_none() -> None:
    one_group = replace(make_sums(draw_rows(6)).grouped, group=np.zeros(120, np.int64))
    assert set(describe_differences(one_group, "a", "b", 0.95).values()) == {None}


def test_reliability_of_all_rows_and_of_shown_values() -> None:
    rows = draw_rows(7)
    found = describe_reliability(make_sums(rows), ("a", "b"), [0])
    assert [(curve["field_value_id"], curve["method"]) for curve in found] == [
        (None, "a"), (None, "b"), (0, "a"), (0, "b")
    ]  # fmt: skip
    for curve in found:
        own = slice(None) if curve["field_value_id"] is None else rows["value"] == 0
        n = np.array(curve["n_samples"])
        assert n.sum() == len(rows["label"][own]) and len(n) == 12
        total = np.sum(n * np.array(curve["response_rate"]))
        assert total == pytest.approx(rows["label"][own].sum())
        assert np.sum(n * np.array(curve["mean_score"])) == pytest.approx(rows["scores"][curve["method"]][own].sum())


def test_refusals() -> None:
    sums = make_sums(draw_rows(8))
    with pytest.raises(MetricsError, match="no sums of a method 'c'; methods summed: a, b, truth"):
        describe_differences(sums.grouped, "a", "c", 0.95)
    with pytest.raises(MetricsError, match="interval level 95"):
        describe_methods(sums, ReferenceLevels(), 95)
