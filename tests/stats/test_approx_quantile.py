"""The reference path: bounds by percentile_approx, sums by a second pass."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib.stats.approx_quantile import compute_approximate_bounds, sum_bins_of_rows
from tests import oracle
from tests.assert_table import assert_table, collect_rows
from tests.stats.small_samples import draw_samples, make_samples, samples_by_hand

JUST_ABOVE = 2.0**-20


def test_bounds_by_hand(spark: SparkSession) -> None:
    # value 1: logits 1 … 8, K = 2: smallest, the 4th, just above the largest. Value 2 has 2 cells, fewer than K + 2,
    # and takes the bounds of all 10 rows: -2, the 5th (3), just above 8
    rows = make_samples(spark, samples_by_hand([(1, float(i), 0) for i in range(1, 9)] + [(2, -1.0, 1), (2, -2.0, 0)]))
    bounds = compute_approximate_bounds(rows, "f", 2, 1000)
    expected = [
        {"field_value_id": 0, "bin_bounds": [-2.0, 3.0, 8 + JUST_ABOVE]},
        {"field_value_id": 1, "bin_bounds": [1.0, 4.0, 8 + JUST_ABOVE]},
        {"field_value_id": 2, "bin_bounds": [-2.0, 3.0, 8 + JUST_ABOVE]},
    ]
    assert_table(bounds, expected, ["field_value_id"])


def test_sums_by_hand(spark: SparkSession) -> None:
    # value 1: a sample on bound 4 belongs to the bin above it; all rows: 1, 3 | 4, 6
    rows = make_samples(spark, samples_by_hand([(1, 1.0, 1), (1, 3.0, 0), (1, 4.0, 1), (2, 6.0, 1)]))
    bounds = spark.createDataFrame(
        [(0, [1.0, 4.0, 6.5]), (1, [1.0, 4.0, 4.5]), (2, [6.0, 6.5])], "field_value_id int, bin_bounds array<double>"
    )
    found = [
        (row["field_value_id"], row["bin_index"], row["n_samples"], row["n_responses"], row["sum_weight_logit"])
        for row in collect_rows(sum_bins_of_rows(rows, bounds, "f", 2), ["field_value_id", "bin_index"])
    ]
    assert found == [(0, 0, 2, 1, 4.0), (0, 1, 2, 2, 10.0), (1, 0, 2, 1, 4.0), (1, 1, 1, 1, 4.0), (2, 0, 1, 1, 6.0)]


def test_sums_agree_with_the_oracle_beyond_the_ends_too(spark: SparkSession) -> None:
    drawn = draw_samples(200, seed=8, n_values=2, weighted=True)
    given = {0: [-1.5, -1.0, 0.0, 1.0], 1: [-1.0, 0.5], 2: [-2.0, -1.5, 0.0]}
    bounds = spark.createDataFrame(list(given.items()), "field_value_id int, bin_bounds array<double>")
    expected: dict[tuple[int, int], list[float]] = {}
    for row in drawn.itertuples():
        for value_id in (0, row.field_value_id_f):
            place = (value_id, oracle.bin_index(given[value_id], float(row.uncalibrated_logit)))
            sums = expected.setdefault(place, [0.0, 0.0])
            sums[0] += row.weight
            sums[1] += row.weight * row.label
    table = sum_bins_of_rows(make_samples(spark, drawn), bounds, "f", 3)
    found = {
        (r["field_value_id"], r["bin_index"]): [r["sum_weight"], r["sum_weight_responses"]] for r in collect_rows(table)
    }
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-12)


@pytest.mark.parametrize(("accuracy", "allowed"), [(1000, 1), (20, 50)])
def test_rank_error_is_within_the_accuracy(spark: SparkSession, accuracy: int, allowed: int) -> None:
    # n / accuracy of 1,000 samples, whatever the partitions
    drawn = draw_samples(1000, seed=2, n_values=1)
    logit = np.sort(drawn["uncalibrated_logit"].to_numpy(np.float64))
    for n_partitions in (1, 6):
        table = compute_approximate_bounds(make_samples(spark, drawn, n_partitions), "f", 4, accuracy)
        bounds = collect_rows(table, ["field_value_id"])[1]["bin_bounds"]
        assert bounds[-1] > logit[-1] and sorted(set(bounds)) == bounds
        ranks = np.searchsorted(logit, bounds[:-1], side="right")
        assert np.all(np.abs(ranks - np.array([1, 250, 500, 750])) <= allowed)
