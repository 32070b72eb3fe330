"""Sums of the test split that metrics are computed from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.cells.evaluation import EvaluationSums, describe_methods, describe_reliability
from adacalib.cells.grouped_sums import GroupedSums, MetricsError
from adacalib.cells.metrics import ReferenceLevels
from adacalib.stats.evaluation_sums import add_scores, collect_cells, score_column, sum_by_group, summarise_test
from adacalib.stats.logit_cells import build_logit_cells
from tests.assert_table import collect_rows
from tests.oracle_metrics import auc
from tests.stats.small_samples import draw_samples, make_samples, make_values, samples_by_hand

METHODS = ("uncalibrated", "adacalib", "half")
CELLS_PER_LOGIT = 512


def score_rows(spark: SparkSession, drawn: pd.DataFrame, n_partitions: int = 2) -> DataFrame:
    """Adds the scores: adacalib is .25 throughout, half a function of logit and id."""

    def halve(logit: Any, field_value_id: Any) -> Any:
        return 0.5 / (1 + np.exp(-logit)) / (1 + field_value_id)

    rows = make_samples(spark, drawn, n_partitions).withColumn("calibrated_score", F.lit(0.25).cast("double"))
    return add_scores(rows, "f", {"half": halve})


def sum_groups(spark: SparkSession, drawn: pd.DataFrame, n_partitions: int = 2) -> GroupedSums:
    rows = score_rows(spark, drawn, n_partitions)
    cells = collect_cells(build_logit_cells(rows, make_values(spark), "f"), 4)
    return sum_by_group(rows, cells, "f", METHODS, 5, 3)


def total(sums: GroupedSums, values: np.ndarray) -> dict[tuple[int, int], float]:
    """Sums per (field value id, tercile), groups added up."""
    found: dict[tuple[int, int], float] = {}
    for value_id, tercile, value in zip(sums.field_value_id, sums.tercile, values, strict=True):
        found[int(value_id), int(tercile)] = found.get((int(value_id), int(tercile)), 0.0) + float(value)
    return found


def test_scores_by_hand(spark: SparkSession) -> None:
    rows = collect_rows(score_rows(spark, samples_by_hand([(1, 0.0, 1), (2, 2.0, 0)])), ["sample_id"])
    assert [row[score_column("adacalib")] for row in rows] == [0.25, 0.25]
    sigmoid = 1 / (1 + math.exp(-2))
    np.testing.assert_allclose([row[score_column("uncalibrated")] for row in rows], [0.5, sigmoid], rtol=1e-12)
    np.testing.assert_allclose([row[score_column("half")] for row in rows], [0.125, sigmoid / 6], rtol=1e-12)


def test_group_sums_by_hand(spark: SparkSession) -> None:
    # value 1 has three cells of weight 1, 1.5, 1 (mid-ranks .5, 1.75, 3 of 3.5): one per tercile;
    # value 2 has one sample: tercile 1 as a whole
    drawn = samples_by_hand([(1, -1.0, 0), (1, 0.0, 1), (1, 1.0, 1), (2, 0.0, 0)])
    sums = sum_groups(spark, drawn.assign(weight=[1.0, 1.5, 1.0, 8.0]))
    assert total(sums, sums.weight) == {(1, 0): 1.0, (1, 1): 1.5, (1, 2): 1.0, (2, 1): 8.0}
    assert total(sums, sums.response) == {(1, 0): 0.0, (1, 1): 1.5, (1, 2): 1.0, (2, 1): 0.0}
    assert total(sums, sums.n_samples) == dict.fromkeys([(1, 0), (1, 1), (1, 2), (2, 1)], 1)
    assert total(sums, sums.score_sums["adacalib"]) == {(1, 0): 0.25, (1, 1): 0.375, (1, 2): 0.25, (2, 1): 2.0}
    # -ln(1 - .25) for a 0, -ln(.25) for a 1, times the weight
    losses = {(1, 0): -math.log(0.75), (1, 1): -1.5 * math.log(0.25), (1, 2): -math.log(0.25)}
    found = total(sums, sums.log_loss_sums["adacalib"])
    for place, loss in (losses | {(2, 1): -8 * math.log(0.75)}).items():
        assert found[place] == pytest.approx(loss, rel=1e-12)


def test_group_sums_agree_with_pandas_on_any_partitioning(spark: SparkSession) -> None:
    drawn = draw_samples(300, seed=5, weighted=True)
    p = 1 / (1 + np.exp(-drawn["uncalibrated_logit"].astype(float)))
    loss = -np.where(drawn["label"] == 1, np.log(p), np.log1p(-p))
    by_value = {
        "score": (drawn["weight"] * p).groupby(drawn["field_value_id_f"]).sum(),
        "loss": (drawn["weight"] * loss).groupby(drawn["field_value_id_f"]).sum(),
    }
    groups = []
    for n_partitions in (1, 5):
        sums = sum_groups(spark, drawn, n_partitions)
        assert int(sums.n_samples.sum()) == 300 and set(sums.group) == set(range(5))
        for values, wanted in ((sums.score_sums, by_value["score"]), (sums.log_loss_sums, by_value["loss"])):
            found = np.bincount(sums.field_value_id, weights=values["uncalibrated"], minlength=4)
            np.testing.assert_allclose(found[1:], wanted.loc[[1, 2, 3]], rtol=1e-9)
        groups.append(sorted(zip(sums.field_value_id, sums.tercile, sums.group, sums.n_samples, strict=True)))
    assert groups[0] == groups[1]


def test_unseen_value_is_one_row_of_the_sums(spark: SparkSession) -> None:
    sums = sum_groups(spark, samples_by_hand([(0, -1.0, 0), (1, 0.0, 1)]).assign(weight=[3.0, 1.0]))
    assert total(sums, sums.weight) == {(0, 1): 3.0, (1, 1): 1.0}


def summarise(
    spark: SparkSession, drawn: pd.DataFrame, *, has_truth: bool, shown: tuple[int, ...] = (), n_partitions: int = 2
) -> EvaluationSums:
    """The truth is .75 for a 1 and .25 for a 0."""
    truth = F.when(F.col("label") == 1, 0.75).otherwise(0.25)
    rows = score_rows(spark, drawn, n_partitions).withColumn("true_probability", truth)
    cells = collect_cells(build_logit_cells(rows, make_values(spark), "f"), 4)
    return summarise_test(
        rows,
        METHODS,
        "f",
        cells,
        n_groups=5,
        seed=3,
        cells_per_logit=CELLS_PER_LOGIT,
        has_truth=has_truth,
        shown_values=shown,
    )


def test_scored_samples_have_no_score_of_adacalib(spark: SparkSession) -> None:
    rows = add_scores(make_samples(spark, samples_by_hand([(1, 0.0, 1)])), "f", {})
    assert [name for name in rows.columns if name.startswith("score__")] == ["score__uncalibrated"]


def test_truth_sums_by_hand(spark: SparkSession) -> None:
    # one value, one cell: Σw·t = .75 + 3 · .25 = 1.5; |p − t| of adacalib (.25): .5 and 0; of un-calibrated (.5): .25
    # throughout, times weight 4; of the truth itself 0
    drawn = samples_by_hand([(1, 0.0, 1), (1, 0.0, 0)]).assign(weight=[1.0, 3.0])
    sums = summarise(spark, drawn, has_truth=True)
    assert sums.methods == (*METHODS, "truth")
    grouped = sums.grouped
    assert grouped.truth_sum is not None and grouped.truth_sum.sum() == 1.5
    errors = {method: float(values.sum()) for method, values in grouped.truth_error_sums.items()}
    assert (errors["adacalib"], errors["uncalibrated"], errors["truth"]) == (0.5, 1.0, 0.0)
    assert grouped.score_sums["truth"].sum() == 1.5
    # ln(.75) of the right class each, weights 1 and 3
    assert grouped.log_loss_sums["truth"].sum() == pytest.approx(-4 * math.log(0.75))


def test_truth_is_a_method_and_the_floor_of_every_other(spark: SparkSession) -> None:
    sums = summarise(spark, draw_samples(300, seed=9), has_truth=True)
    described = describe_methods(sums, ReferenceLevels(), 0.95)
    truth = described["truth"]
    assert (truth["truth_error"], truth["truth_field_rce"], truth["auc"], truth["field_auc"]) == (0.0, 0.0, 1.0, 1.0)
    for method in (*METHODS, "truth"):
        assert described[method]["field_rce_truth_floor"] == truth["field_rce"]
        assert described[method]["field_rce_terciles_truth_floor"] == truth["field_rce_terciles"]
    assert described["adacalib"]["truth_error"] > 0
    assert len(described["adacalib"]["intervals"]["truth_error"]) == 2


def test_without_truth_its_metrics_are_none(spark: SparkSession) -> None:
    sums = summarise(spark, draw_samples(100, seed=9), has_truth=False)
    assert sums.methods == METHODS and sums.grouped.truth_sum is None
    metrics = describe_methods(sums, ReferenceLevels(), 0.95)["adacalib"]
    names = ("truth_error", "truth_field_rce", "field_rce_truth_floor", "field_rce_terciles_truth_floor")
    assert [metrics[name] for name in names] == [None] * 4


def test_a_row_without_truth_among_others_is_refused(spark: SparkSession) -> None:
    rows = score_rows(spark, samples_by_hand([(1, 0.0, 1), (1, 0.5, 0), (2, 0.0, 0)]))
    cells = collect_cells(build_logit_cells(rows, make_values(spark), "f"), 4)
    partly = rows.withColumn("true_probability", F.when(F.col("label") == 1, 0.5))
    with pytest.raises(MetricsError, match="2 test samples have no true_probability"):
        summarise_test(partly, METHODS, "f", cells, n_groups=5, seed=3, cells_per_logit=CELLS_PER_LOGIT, has_truth=True)


def test_aucs_count_pairs_of_rows_on_any_partitioning(spark: SparkSession) -> None:
    drawn = draw_samples(300, seed=7)
    for n_partitions in (1, 5):
        sums = summarise(spark, drawn, has_truth=False, n_partitions=n_partitions)
        metrics = describe_methods(sums, ReferenceLevels(), 0.95)["uncalibrated"]
        numerator = denominator = 0.0
        for _, own in drawn.groupby("field_value_id_f"):
            positives, negatives = (own["uncalibrated_logit"][own["label"] == label].tolist() for label in (1, 0))
            numerator += len(own) * auc(positives, negatives)
            denominator += len(own)
        positives, negatives = (drawn["uncalibrated_logit"][drawn["label"] == label].tolist() for label in (1, 0))
        assert metrics["field_auc_cell_error"] < 2e-3
        assert metrics["field_auc"] == pytest.approx(numerator / denominator, abs=metrics["field_auc_cell_error"])
        assert metrics["auc"] == pytest.approx(auc(positives, negatives), abs=metrics["auc_cell_error"])
        assert metrics["field_auc_excluded_samples"] == 300 - denominator == 0


def test_reliability_of_all_rows_and_of_the_values_asked_for(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=8)
    found = describe_reliability(summarise(spark, drawn, has_truth=False, shown=(2, 1)), ("adacalib",), (2, 1))
    assert [curve["field_value_id"] for curve in found] == [None, 2, 1]
    for curve in found:
        own = drawn if curve["field_value_id"] is None else drawn[drawn["field_value_id_f"] == curve["field_value_id"]]
        # a score of .25 throughout is one bin
        assert curve["mean_score"] == [pytest.approx(0.25)] and curve["n_samples"] == [len(own)]
        assert curve["response_rate"] == [pytest.approx(own["label"].mean())]
