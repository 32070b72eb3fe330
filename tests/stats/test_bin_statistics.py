"""Bounds and posteriors: from logit cells, and as the reference from percentile_approx."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from adacalib.schemas import BIN_STATISTICS, check_schema
from adacalib.stats import bin_statistics
from adacalib.stats.bin_statistics import approximate_bin_statistics, compute_bin_statistics
from adacalib.stats.logit_cells import build_logit_cells
from tests import oracle
from tests.assert_table import assert_table, collect_rows
from tests.stats.small_samples import draw_samples, make_samples, make_values, samples_by_hand

KEY = ["field_value_id", "n_bins_candidate", "bin_index"]
METHODS = ["logit_cells", "approx_quantile"]


def compute(spark: SparkSession, samples: pd.DataFrame, candidates: tuple[int, ...], method: str) -> DataFrame:
    rows, values = make_samples(spark, samples), make_values(spark)
    if method == "logit_cells":
        return compute_bin_statistics(build_logit_cells(rows, values, "f"), values, "f", candidates)
    return approximate_bin_statistics(rows, values, "f", candidates, 1000)


def list_bins(rows: list[dict], candidate: int) -> dict[int, list[dict]]:
    """Per id the bins of one candidate, in order."""
    bins: dict[int, list[dict]] = {}
    for row in sorted(rows, key=lambda row: row["bin_index"]):
        if row["n_bins_candidate"] == candidate:
            bins.setdefault(row["field_value_id"], []).append(row)
    return bins


def select(samples: pd.DataFrame, value_id: int) -> pd.DataFrame:
    return samples if value_id == 0 else samples[samples["field_value_id_f"] == value_id]


@pytest.fixture(scope="module")
def samples() -> pd.DataFrame:
    """Weighted samples of three field values; the third has too few cells for 20 bins."""
    drawn = draw_samples(600, seed=4, weighted=True)
    few = drawn["field_value_id_f"] == 3
    drawn.loc[few, "uncalibrated_logit"] = np.round(drawn.loc[few, "uncalibrated_logit"] * 2) / 2
    return drawn


@pytest.fixture(scope="module", params=METHODS)
def rows(request: pytest.FixtureRequest, spark: SparkSession, samples: pd.DataFrame) -> list[dict]:
    return collect_rows(compute(spark, samples, (5, 20), request.param))


def test_every_value_and_candidate_is_there_and_typed(spark: SparkSession, samples: pd.DataFrame) -> None:
    for method in METHODS:
        table = compute(spark, samples.head(50), (2, 4), method)
        check_schema(table.schema, BIN_STATISTICS, "bin_statistics")
        found = {(row["field_value_id"], row["field_value"], row["n_bins_candidate"]) for row in collect_rows(table)}
        assert found == {(i, v, k) for i, v in ((0, None), (1, "v1"), (2, "v2"), (3, "v3")) for k in (2, 4)}


@pytest.mark.parametrize("candidate", [5, 20])
def test_bounds_increase_and_bins_hold_every_sample(rows: list[dict], samples: pd.DataFrame, candidate: int) -> None:
    bins = list_bins(rows, candidate)
    assert sorted(bins) == [0, 1, 2, 3]
    for value_id, own in bins.items():
        assert [row["bin_index"] for row in own] == list(range(own[0]["n_bins"]))
        assert all(row["lower_bound"] < row["upper_bound"] for row in own)
        assert all(left["upper_bound"] == right["lower_bound"] for left, right in pairwise(own))
        mine = select(samples, value_id)
        assert sum(row["n_samples"] for row in own) == len(mine)  # the value's frequency
        assert sum(row["n_responses"] for row in own) == mine["label"].sum()
        assert own[0]["lower_bound"] <= mine["uncalibrated_logit"].min()
        assert own[-1]["upper_bound"] > mine["uncalibrated_logit"].max()


@pytest.mark.parametrize("candidate", [5, 20])
def test_posteriors_agree_with_rows_dealt_by_the_oracle(
    rows: list[dict], samples: pd.DataFrame, candidate: int
) -> None:
    for value_id, own in list_bins(rows, candidate).items():
        bounds = [row["lower_bound"] for row in own] + [own[-1]["upper_bound"]]
        mine = select(samples, value_id)
        index = np.array([oracle.bin_index(bounds, float(s)) for s in mine["uncalibrated_logit"]])
        for row in own:
            inside = mine[index == row["bin_index"]]
            weight = inside["weight"].sum()
            assert (row["n_samples"], row["n_responses"]) == (len(inside), inside["label"].sum())
            np.testing.assert_allclose(row["sum_weight"], weight, rtol=1e-12)
            if not len(inside):
                assert row["response_rate"] is None and row["mean_logit"] is None
                continue
            rate = (inside["weight"] * inside["label"]).sum() / weight
            np.testing.assert_allclose(row["response_rate"], rate, rtol=1e-12)
            logit = inside["uncalibrated_logit"].astype(float)
            np.testing.assert_allclose(row["mean_logit"], (inside["weight"] * logit).sum() / weight, rtol=1e-9)


def test_bounds_from_cells_are_the_oracles(spark: SparkSession, samples: pd.DataFrame) -> None:
    table = collect_rows(compute(spark, samples, (5, 20), "logit_cells"))
    cells = np.floor(samples["uncalibrated_logit"].astype(float) * 32).astype(int)
    summed = samples["weight"].groupby([samples["field_value_id_f"], cells]).sum()
    by_value: list[list] = [[], [], [], []]
    for (value_id, cell), weight in summed.items():
        by_value[value_id].append((cell, weight))
    for candidate in (5, 20):
        expected = oracle.bin_bounds(by_value, candidate)
        for value_id, own in list_bins(table, candidate).items():
            assert [row["lower_bound"] for row in own] + [own[-1]["upper_bound"]] == expected[value_id]


def test_both_methods_have_the_ranks_of_exact_quantiles(spark: SparkSession) -> None:
    # no ties, no weights: bound k should have k/K of the samples below it. percentile_approx may be off by
    # n/accuracy; a cell edge by the share of one cell, below 2/n + 1/32 · density < 3 % here
    drawn = draw_samples(2000, seed=9, n_values=2)
    tables = {method: collect_rows(compute(spark, drawn, (8,), method)) for method in METHODS}
    for value_id in (0, 1, 2):
        logit = np.sort(select(drawn, value_id)["uncalibrated_logit"].to_numpy(np.float64))
        exact = np.quantile(logit, np.arange(1, 8) / 8, method="inverted_cdf")
        for method, allowed in (("approx_quantile", 0.001), ("logit_cells", 0.015)):
            bounds = np.array([row["lower_bound"] for row in list_bins(tables[method], 8)[value_id]][1:])
            assert len(bounds) == 7
            off = np.abs(np.searchsorted(logit, bounds) - np.searchsorted(logit, exact))
            assert off.max() <= allowed * len(logit) + 1, (method, value_id)


@pytest.mark.parametrize("method", METHODS)
def test_equal_scores_make_one_bin(spark: SparkSession, method: str) -> None:
    drawn = samples_by_hand([(1, 0.5, 1), (1, 0.5, 0), (2, 0.5, 0), (3, 0.5, 1)])
    rows = collect_rows(compute(spark, drawn, (5,), method), KEY)
    assert [(row["field_value_id"], row["n_bins"], row["n_samples"], row["response_rate"]) for row in rows] == [
        (0, 1, 4, 0.5),
        (1, 1, 2, 0.5),
        (2, 1, 1, 0.0),
        (3, 1, 1, 1.0),
    ]


def test_ties_merge_bounds_in_both_methods(spark: SparkSession) -> None:
    # 90 scores equal, 10 others: three of the four inner bounds fall on the tie
    drawn = samples_by_hand([(1, -4.0, 0)] * 90 + [(1, i / 8, 1) for i in range(10)])
    for method in METHODS:
        own = list_bins(collect_rows(compute(spark, drawn, (5,), method)), 5)[1]
        assert len(own) < 5 and own[0]["n_bins"] == len(own)
        assert own[0]["lower_bound"] == -4.0
        assert sum(row["n_samples"] for row in own) == 100


def test_tasks_of_few_values_give_the_same_table(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw_samples(300, seed=6, weighted=True)
    one = collect_rows(compute(spark, drawn, (5,), "logit_cells"))
    monkeypatch.setattr(bin_statistics, "VALUES_PER_TASK", 1)
    assert_table(collect_rows(compute(spark, drawn, (5,), "logit_cells")), one, KEY, rtol=1e-12)


def test_row_given_twice_equals_weight_two(spark: SparkSession) -> None:
    drawn = draw_samples(80, seed=7)
    counts = ("n_samples", "n_responses")
    twice, heavy = (
        [
            {name: value for name, value in row.items() if name not in counts}
            for row in collect_rows(compute(spark, given, (4,), "logit_cells"))
        ]
        for given in (pd.concat([drawn, drawn]), drawn.assign(weight=2.0))
    )
    assert_table(twice, heavy, KEY, rtol=1e-12)
