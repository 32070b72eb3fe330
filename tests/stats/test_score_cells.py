"""Score cells and the AUC inside each field value, from rows with one score column per method."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.cells.score_cells import SCORE_CELLS_PER_LOGIT, assign_score_cell
from adacalib.cells.value_aucs import compute_value_aucs
from adacalib.stats import score_cells
from adacalib.stats.score_cells import (
    build_value_aucs,
    collect_score_cells,
    collect_shown_cells,
    collect_value_aucs,
    count_score_cells,
    score_column,
)
from tests.assert_table import collect_rows
from tests.oracle_metrics import auc, delong_variance
from tests.stats.small_samples import draw_samples, make_samples, samples_by_hand

METHODS = ("plain", "quarter")


def score_rows(spark: SparkSession, drawn: pd.DataFrame, n_partitions: int = 2) -> DataFrame:
    """Scores: σ(logit), and .25 throughout."""
    plain = 1.0 / (1.0 + F.exp(-F.col("uncalibrated_logit").cast("double")))
    rows = make_samples(spark, drawn, n_partitions)
    return rows.withColumns({score_column("plain"): plain, score_column("quarter"): F.lit(0.25).cast("double")})


def test_score_cells_by_hand(spark: SparkSession) -> None:
    # .25 has logit -ln 3 = -1.0986 → cell floor(-1.0986 · 512) = -563
    drawn = samples_by_hand([(1, 0.0, 1), (1, 0.001, 0), (2, 0.0, 1)]).assign(weight=[1.0, 2.0, 4.0])
    rows = score_rows(spark, drawn)
    by_value = collect_rows(count_score_cells(rows, METHODS, "f"), ["method_index", "field_value_id"])
    names = ("field_value_id", "cell", "weight", "response", "score_sum", "n_samples", "n_responses")
    found = {i: [tuple(row[n] for n in names) for row in by_value if row["method_index"] == i] for i in (0, 1)}
    assert found[1] == [(1, -563, 3.0, 1.0, 0.75, 2, 1), (2, -563, 4.0, 4.0, 1.0, 1, 1)]
    # σ(logit): 0.001 · 512 = .512, so both samples of value 1 share cell 0
    assert [row[:4] for row in found[0]] == [(1, 0, 3.0, 1.0), (2, 0, 4.0, 4.0)]
    assert SCORE_CELLS_PER_LOGIT == 512
    pooled = collect_score_cells(rows, METHODS)["quarter"]
    assert (pooled.cell.tolist(), pooled.weight.tolist(), pooled.score_sum.tolist()) == ([-563], [7.0], [1.75])
    assert (pooled.n_samples.tolist(), pooled.n_responses.tolist()) == ([3], [2])


def test_score_cells_keep_the_order_of_scores(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=6)
    cells = collect_score_cells(score_rows(spark, drawn), METHODS)["plain"]
    assert np.all(np.diff(cells.cell) > 0) and cells.n_samples.sum() == 200
    logit = np.sort(drawn["uncalibrated_logit"].to_numpy(np.float64))
    # a logit on a cell's edge may move by rounding of σ and back: the cumulated counts differ by one sample at most
    for edge in np.arange(-6 * 512, 6 * 512, 64):
        found = cells.n_samples[cells.cell < edge].sum()
        assert abs(found - np.searchsorted(logit, edge / 512)) <= 1


def test_spark_and_numpy_have_the_same_cells(spark: SparkSession) -> None:
    rows = score_rows(spark, draw_samples(150, seed=4).assign(uncalibrated_logit=np.linspace(-30, 30, 150)))
    scores = np.array([row[score_column("plain")] for row in collect_rows(rows.select(score_column("plain")))])
    found = collect_score_cells(rows, METHODS)["plain"]
    cell, n = np.unique(assign_score_cell(scores), return_counts=True)
    np.testing.assert_array_equal(found.cell, cell)
    np.testing.assert_array_equal(found.n_samples, n)


def test_shown_values_are_kept_apart(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=3, weighted=True)
    shown = collect_shown_cells(score_rows(spark, drawn), METHODS, "f", [3, 1, 99])
    assert list(shown) == [3, 1, 99]
    for value in (3, 1):
        own = drawn[drawn["field_value_id_f"] == value]
        for method in METHODS:
            assert shown[value][method].weight.sum() == pytest.approx(own["weight"].sum())
            assert shown[value][method].n_responses.sum() == own["label"].sum()
    assert len(shown[99]["plain"]) == 0
    assert collect_shown_cells(score_rows(spark, drawn), METHODS, "f", []) == {}


@pytest.mark.parametrize("scores_at_once", [2, 64, 1_000_000])
def test_value_aucs_same_as_counting_pairs(
    spark: SparkSession, scores_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a row at a time, some, all: a value whose rows come in several goes is put together
    monkeypatch.setattr(score_cells, "_SCORES_AT_ONCE", scores_at_once)
    drawn = draw_samples(120, seed=2)
    drawn["label"] = (np.arange(120) % 5 < 2).astype(np.int8)
    # logits on a grid, so that cells and scores have the same ties
    drawn["uncalibrated_logit"] = (np.round(drawn["uncalibrated_logit"] * 4) / 4 + 1 / 1024).astype(np.float32)
    found = collect_value_aucs(score_rows(spark, drawn, 3), "f", METHODS)
    for method in METHODS:
        aucs = found[method]
        assert aucs.field_value_id.tolist() == sorted(drawn["field_value_id_f"].unique())
        for at, value in enumerate(aucs.field_value_id):
            own = drawn[drawn["field_value_id_f"] == value]
            score = own["uncalibrated_logit"] if method == "plain" else own["uncalibrated_logit"] * 0
            positives, negatives = (score[own["label"] == label].tolist() for label in (1, 0))
            assert (aucs.count_1[at], aucs.count_0[at], aucs.weight[at]) == (len(positives), len(negatives), len(own))
            assert aucs.has_both_classes[at]
            assert aucs.auc[at] == pytest.approx(auc(positives, negatives), rel=1e-12)
            if min(len(positives), len(negatives)) > 1:
                variance = aucs.spread_1[at] / (len(positives) - 1) + aucs.spread_0[at] / (len(negatives) - 1)
                assert variance == pytest.approx(delong_variance(positives, negatives), rel=1e-9, abs=1e-15)


def test_value_aucs_by_hand_with_weights_and_one_class(spark: SparkSession) -> None:
    # value 1: positives at 1 (weight 2) and -1 (weight 1), negative at 0: 2 of 3 in order; unseen values: no positive
    drawn = samples_by_hand([(1, 1.0, 1), (1, -1.0, 1), (1, 0.0, 0), (0, 0.0, 0)]).assign(weight=[2.0, 1.0, 1.0, 3.0])
    rows = collect_rows(build_value_aucs(score_rows(spark, drawn), "f", METHODS), ["field_value_id", "method_index"])
    assert [(row["field_value_id"], row["method_index"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["has_both_classes"] for row in rows] == [False, False, True, True]
    assert [row["weight"] for row in rows] == [3.0, 3.0, 4.0, 4.0]
    assert rows[2]["auc"] == pytest.approx(2 / 3) and rows[3]["auc"] == 0.5
    assert (rows[2]["count_1"], rows[2]["count_0"]) == (2, 1)


def make_batches(values: list[int], cuts: set[int], seed: int) -> list[pa.RecordBatch]:
    """Rows of the values given, in order, cut into batches at the places given; two methods' random scores."""
    generator = np.random.default_rng(seed)
    scores = [[float(x) for x in generator.uniform(0.2, 0.4, 2)] for _ in values]
    columns = {
        "field_value_id": pa.array(values, pa.int32()),
        "label": pa.array(generator.integers(0, 2, len(values)), pa.int8()),
        "weight": pa.array(generator.choice([0.5, 1.0], len(values))),
        "scores": pa.array(scores, pa.list_(pa.float64())),
    }
    whole = pa.RecordBatch.from_pydict(columns)
    places = [0, *sorted(cut for cut in cuts if cut < len(values)), len(values)]
    return [whole.slice(a, b - a) for a, b in pairwise(places)]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), max_size=60), st.sets(st.integers(0, 60)), st.integers(1, 20), st.integers(0, 99))
def test_no_value_is_split_however_rows_come(values: list[int], cuts: set[int], at_once: int, seed: int) -> None:
    batches = make_batches(sorted(values), cuts, seed)
    before, score_cells._SCORES_AT_ONCE = score_cells._SCORES_AT_ONCE, at_once
    try:
        parts = list(score_cells._iterate_whole_values(iter(batches), 2))
    finally:
        score_cells._SCORES_AT_ONCE = before
    keys = [set(part.key.tolist()) for part in parts]
    assert sorted(key for own in keys for key in own) == sorted({2 * v + m for v in values for m in (0, 1)})
    whole = _whole(batches)
    for part in parts:
        found = compute_value_aucs(part.key, part.cell, part.weight, part.response, part.n_samples, part.n_responses)
        for key, value_auc in zip(found.field_value_id, found.auc, strict=True):
            assert value_auc == pytest.approx(whole[int(key)], rel=1e-12, abs=1e-12)


def _whole(batches: list[pa.RecordBatch]) -> dict[int, Any]:
    rows = pa.Table.from_batches(batches)
    found = {}
    for method in (0, 1):
        scores = np.array([row[method] for row in rows["scores"].to_pylist()], float)
        label, weight = rows["label"].to_numpy(), rows["weight"].to_numpy()
        ids = rows["field_value_id"].to_numpy().astype(np.int64)
        aucs = compute_value_aucs(ids, assign_score_cell(scores), weight, weight * label)
        found |= {2 * int(v) + method: x for v, x in zip(aucs.field_value_id, aucs.auc, strict=True)}
    return found


def test_a_missing_score_is_refused(spark: SparkSession) -> None:
    rows = score_rows(spark, samples_by_hand([(1, 0.0, 1), (1, 1.0, 0)]))
    holed = rows.withColumn(score_column("quarter"), F.when(F.col("label") == 1, 0.25))
    with pytest.raises(PySparkException, match="1 of 4 scores missing"):
        collect_value_aucs(holed, "f", METHODS)
