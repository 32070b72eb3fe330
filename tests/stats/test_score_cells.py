"""Score cells and the AUC inside each field value, from rows with one score column per method."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.cells.score_cells import assign_score_cell, count_score_cells
from adacalib.cells.value_aucs import compute_value_aucs
from adacalib.stats import score_cells
from adacalib.stats.logit_cells import MAX_FIELD_VALUE_ID
from adacalib.stats.score_cells import (
    build_score_cells,
    build_value_aucs,
    collect_pooled_cells,
    collect_shown_cells,
    collect_value_aucs,
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


def cells_of(spark: SparkSession, drawn: pd.DataFrame, cells_per_logit: int = 512, n_partitions: int = 2) -> DataFrame:
    return build_score_cells(score_rows(spark, drawn, n_partitions), "f", METHODS, cells_per_logit)


def test_score_cells_by_hand(spark: SparkSession) -> None:
    # .25 has logit -ln 3 = -1.0986 → cell floor(-1.0986 · 512) = -563
    drawn = samples_by_hand([(1, 0.0, 1), (1, 0.001, 0), (2, 0.0, 1)]).assign(weight=[1.0, 2.0, 4.0])
    cells = cells_of(spark, drawn)
    by_value = collect_rows(cells, ["method_index", "field_value_id"])
    names = ("field_value_id", "cell", "weight", "response", "score_sum", "n_samples", "n_responses")
    found = {i: [tuple(row[n] for n in names) for row in by_value if row["method_index"] == i] for i in (0, 1)}
    assert found[1] == [(1, -563, 3.0, 1.0, 0.75, 2, 1), (2, -563, 4.0, 4.0, 1.0, 1, 1)]
    # σ(logit): 0.001 · 512 = .512, so both samples of value 1 share cell 0
    assert [row[:4] for row in found[0]] == [(1, 0, 3.0, 1.0), (2, 0, 4.0, 4.0)]
    pooled = collect_pooled_cells(cells, METHODS)["quarter"]
    assert (pooled.cell.tolist(), pooled.weight.tolist(), pooled.score_sum.tolist()) == ([-563], [7.0], [1.75])
    assert (pooled.n_samples.tolist(), pooled.n_responses.tolist()) == ([3], [2])


def test_score_cells_keep_the_order_of_scores(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=6)
    cells = collect_pooled_cells(cells_of(spark, drawn), METHODS)["plain"]
    assert np.all(np.diff(cells.cell) > 0) and cells.n_samples.sum() == 200
    logit = np.sort(drawn["uncalibrated_logit"].to_numpy(np.float64))
    # a logit on a cell's edge may move by rounding of σ and back: the cumulated counts differ by one sample at most
    for edge in np.arange(-6 * 512, 6 * 512, 64):
        found = cells.n_samples[cells.cell < edge].sum()
        assert abs(found - np.searchsorted(logit, edge / 512)) <= 1


@pytest.mark.parametrize("cells_per_logit", [1, 128, 2**20])
def test_spark_and_numpy_have_the_same_cells(spark: SparkSession, cells_per_logit: int) -> None:
    # to the ends of the grid and with the largest id there is room for: the packed key is unpacked whole
    drawn = draw_samples(150, seed=4).assign(uncalibrated_logit=np.linspace(-30, 30, 150))
    drawn["field_value_id_f"] = np.where(np.arange(150) % 2, MAX_FIELD_VALUE_ID, 0)
    rows = score_rows(spark, drawn)
    kept = collect_rows(rows.select("field_value_id_f", score_column("plain")))
    expected = {}
    for value in (0, MAX_FIELD_VALUE_ID):
        scores = np.array([row[score_column("plain")] for row in kept if row["field_value_id_f"] == value])
        cell, n = np.unique(assign_score_cell(scores, cells_per_logit), return_counts=True)
        expected[value] = list(zip(cell.tolist(), n.tolist(), strict=True))
    found = collect_rows(build_score_cells(rows, "f", METHODS, cells_per_logit), ["field_value_id", "cell"])
    for value, cells in expected.items():
        own = [row for row in found if row["field_value_id"] == value and row["method_index"] == 0]
        assert [(row["cell"], row["n_samples"]) for row in own] == cells


def test_the_key_of_a_billion_values_fits_in_a_long() -> None:
    assert (MAX_FIELD_VALUE_ID + 1) * 64 * count_score_cells(2**20) < 2**63


def test_without_weights_sums_follow_from_counts(spark: SparkSession) -> None:
    rows = score_rows(spark, draw_samples(200, seed=8))
    keys = ["field_value_id", "method_index", "cell"]
    parts = [collect_rows(build_score_cells(rows, "f", METHODS, 32, has_weights=w), keys) for w in (True, False)]
    for one, other in zip(*parts, strict=True):
        assert one.keys() == other.keys()
        assert list(one.values()) == pytest.approx(list(other.values()), rel=1e-12)


def test_shown_values_are_kept_apart(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=3, weighted=True)
    cells = cells_of(spark, drawn)
    shown = collect_shown_cells(cells, METHODS, [3, 1, 99])
    assert list(shown) == [3, 1, 99]
    for value in (3, 1):
        own = drawn[drawn["field_value_id_f"] == value]
        for method in METHODS:
            assert shown[value][method].weight.sum() == pytest.approx(own["weight"].sum())
            assert shown[value][method].n_responses.sum() == own["label"].sum()
    assert len(shown[99]["plain"]) == 0
    assert collect_shown_cells(cells, METHODS, []) == {}


@pytest.mark.parametrize("cells_at_once", [1, 64, 1_000_000])
def test_value_aucs_same_as_counting_pairs(
    spark: SparkSession, cells_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a batch at a time, some, all: a value whose cells come in several goes is put together
    monkeypatch.setattr(score_cells, "_CELLS_AT_ONCE", cells_at_once)
    drawn = draw_samples(120, seed=2)
    drawn["label"] = (np.arange(120) % 5 < 2).astype(np.int8)
    # logits on a grid, so that cells and scores have the same ties
    drawn["uncalibrated_logit"] = (np.round(drawn["uncalibrated_logit"] * 4) / 4 + 1 / 1024).astype(np.float32)
    found = collect_value_aucs(cells_of(spark, drawn, n_partitions=3), METHODS)
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
    rows = collect_rows(build_value_aucs(cells_of(spark, drawn), len(METHODS)), ["field_value_id", "method_index"])
    assert [(row["field_value_id"], row["method_index"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["has_both_classes"] for row in rows] == [False, False, True, True]
    assert [row["weight"] for row in rows] == [3.0, 3.0, 4.0, 4.0]
    assert rows[2]["auc"] == pytest.approx(2 / 3) and rows[3]["auc"] == 0.5
    assert (rows[2]["count_1"], rows[2]["count_0"]) == (2, 1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), max_size=60), st.sets(st.integers(0, 60)), st.integers(1, 20), st.integers(0, 99))
def test_no_value_is_split_however_cells_come(values: list[int], cuts: set[int], at_once: int, seed: int) -> None:
    cells = make_cells(sorted(values), seed)
    places = [0, *sorted(cut for cut in cuts if cut < len(values)), len(values)]
    batches = [cells.slice(a, b - a) for a, b in pairwise(places)]
    before, score_cells._CELLS_AT_ONCE = score_cells._CELLS_AT_ONCE, at_once
    try:
        parts = list(score_cells._iterate_whole_values(iter(batches)))
    finally:
        score_cells._CELLS_AT_ONCE = before
    owned = [set(part["field_value_id"].to_pylist()) for part in parts]
    assert sorted(value for own in owned for value in own) == sorted(set(values))
    assert sum(part.num_rows for part in parts) == len(values)
    ids = cells["field_value_id"].to_numpy().astype(np.int64) * 2 + cells["method_index"].to_numpy()
    names = ("cell", "weight", "response", "n_samples", "n_responses")
    whole = compute_value_aucs(ids, *(cells[name].to_numpy() for name in names))
    found = [row for part in parts for row in score_cells._describe_values(part, 2).to_pylist()]
    assert [2 * row["field_value_id"] + row["method_index"] for row in found] == whole.field_value_id.tolist()
    assert [row["auc"] for row in found] == pytest.approx(whole.auc.tolist(), rel=1e-12, abs=1e-12)


def make_cells(values: list[int], seed: int) -> pa.RecordBatch:
    """A random cell of one of two methods for each of the values given, in their order."""
    generator, n = np.random.default_rng(seed), len(values)
    counts = generator.integers(1, 4, n)
    responses = generator.integers(0, counts + 1)
    columns = {
        "field_value_id": pa.array(values, pa.int32()),
        "method_index": pa.array(generator.integers(0, 2, n), pa.int32()),
        "cell": pa.array(generator.integers(-9, 9, n), pa.int32()),
        "weight": pa.array(counts * 0.5),
        "response": pa.array(responses * 0.5),
        "n_samples": pa.array(counts),
        "n_responses": pa.array(responses),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(("score", "told"), [(None, "missing"), (float("nan"), "NaN"), (1.5, "1.5"), (-0.25, "-0.25")])
def test_a_score_that_is_no_probability_is_refused(spark: SparkSession, score: float | None, told: str) -> None:
    rows = score_rows(spark, samples_by_hand([(1, 0.0, 1), (1, 1.0, 0)]))
    bad = F.when(F.col("label") == 1, 0.25).otherwise(F.lit(score).cast("double"))
    cells = build_score_cells(rows.withColumn(score_column("quarter"), bad), "f", METHODS, 128)
    with pytest.raises(PySparkException, match=f"a test row's score is {told}: each method gives each test row"):
        collect_value_aucs(cells, METHODS)
