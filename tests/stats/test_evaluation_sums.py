"""Sums of the test split that metrics are computed from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.cells.grouped_sums import GroupedSums
from adacalib.stats.evaluation_sums import (
    SCORE_CELLS_PER_LOGIT,
    add_scores,
    collect_cells,
    count_score_cells,
    score_column,
    sum_by_group,
)
from adacalib.stats.logit_cells import build_logit_cells
from tests.assert_table import collect_rows
from tests.stats.small_samples import draw_samples, make_samples, make_values, samples_by_hand

METHODS = ("uncalibrated", "adacalib", "half")


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


def test_score_cells_by_hand(spark: SparkSession) -> None:
    # adacalib: .25 throughout, logit -ln 3 = -1.0986 → cell floor(-1.0986 · 512) = -563
    drawn = samples_by_hand([(1, 0.0, 1), (1, 0.001, 0), (2, 0.0, 1)]).assign(weight=[1.0, 2.0, 4.0])
    rows = collect_rows(count_score_cells(score_rows(spark, drawn), "f", METHODS), ["method", "field_value_id"])
    names = ("field_value_id", "cell", "weight", "response", "score_sum", "n_samples", "n_responses")
    found = {method: [tuple(row[n] for n in names) for row in rows if row["method"] == method] for method in METHODS}
    assert found["adacalib"] == [(1, -563, 3.0, 1.0, 0.75, 2, 1), (2, -563, 4.0, 4.0, 1.0, 1, 1)]
    # un-calibrated: 0.001 · 512 = .512, so both samples of value 1 share cell 0
    assert [row[:4] for row in found["uncalibrated"]] == [(1, 0, 3.0, 1.0), (2, 0, 4.0, 4.0)]
    assert SCORE_CELLS_PER_LOGIT == 512


def test_score_cells_keep_the_order_of_scores(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=6)
    rows = collect_rows(count_score_cells(score_rows(spark, drawn), "f", ["uncalibrated"]))
    logit = drawn["uncalibrated_logit"].to_numpy(np.float64)
    expected = pd.Series(np.floor(logit * 512 + 1e-9)).value_counts()
    assert sum(row["n_samples"] for row in rows) == 200
    by_cell = pd.Series({c: sum(r["n_samples"] for r in rows if r["cell"] == c) for c in {r["cell"] for r in rows}})
    # a logit on a cell's edge may move by rounding of σ and back: the cumulated counts differ by one sample at most
    grid = np.arange(-6 * 512, 6 * 512, 64)
    found, wanted = (np.array([series[series.index < c].sum() for c in grid]) for series in (by_cell, expected))
    assert np.max(np.abs(found - wanted)) <= 1
