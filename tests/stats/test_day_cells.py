"""Cells of stored days: named by the raw value, added up and weighed."""

from __future__ import annotations

from datetime import date, timedelta
from functools import reduce

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.schemas import DAY_CELLS, LOGIT_CELLS, check_schema
from adacalib.stats.day_cells import build_window_cells, count_stored_values, drop_ids
from adacalib.stats.logit_cells import build_logit_cells
from tests.assert_table import assert_table, collect_rows
from tests.stats.small_samples import draw_samples, make_samples, make_values

FIRST = date(2024, 1, 1)
SUMS = ("n_samples", "n_responses", "sum_logit", "sum_weight", "sum_weight_responses", "sum_weight_logit")


def make_day_cells(spark: SparkSession, rows: list[tuple[int, str | None, str, int, int, float]]) -> DataFrame:
    """From (days after FIRST, field, value, value_kind …): (day, value, kind, cell, n, weight); two responses each."""
    full = [
        (FIRST + timedelta(days=day), "f", value, kind, cell, n, 2, 5, weight, 2.0, -weight)
        for day, value, kind, cell, n, weight in rows
    ]
    return spark.createDataFrame(full, DAY_CELLS)


def test_values_are_counted_over_days_by_hand(spark: SparkSession) -> None:
    cells = make_day_cells(
        spark, [(0, "a", "value", 3, 10, 10.0), (1, "a", "value", 4, 5, 5.0), (1, None, "null", 3, 7, 7.0)]
    )
    other = cells.limit(1).withColumn("field", F.lit("g"))
    expected = [
        {"name": "f", "value": "a", "n_samples": 15, "n_responses": 4},
        {"name": "f", "value": None, "n_samples": 7, "n_responses": 2},
    ]
    assert_table(count_stored_values(cells.unionByName(other), ["f"]), expected, ["value"])


def test_ids_and_decay_by_hand(spark: SparkSession) -> None:
    # the missing value has an id of its own; the row of unseen values, null as well, is not mistaken for it
    values = spark.createDataFrame(
        [("f", "a", "value", 1, 15, 4), ("f", None, "null", 2, 7, 2), ("f", None, "unseen", 0, 0, 0)],
        "field string, field_value string, value_kind string, field_value_id int, n_samples long, n_responses long",
    )
    cells = make_day_cells(spark, [(0, "a", "value", 3, 10, 10.0), (2, None, "null", 3, 7, 7.0)])
    found = build_window_cells(cells, values, FIRST + timedelta(days=2), 0.5)
    check_schema(found.schema, LOGIT_CELLS, "logit_cells")
    old, new = collect_rows(found, ["date"])
    assert [(row["field_value_id"], row["n_samples"], row["sum_logit"]) for row in (old, new)] == [
        (1, 10, 5),
        (2, 7, 5),
    ]
    # two days old: a quarter of the weight
    assert [old[name] for name in SUMS[3:]] == [2.5, 0.5, -2.5]
    assert [new[name] for name in SUMS[3:]] == [7.0, 2.0, -7.0]


def test_a_value_without_id_is_refused(spark: SparkSession) -> None:
    cells = make_day_cells(spark, [(0, "new", "value", 3, 10, 10.0)])
    with pytest.raises(Exception, match="a stored day has a value that field_values lacks: f new"):
        build_window_cells(cells, make_values(spark), FIRST, 1.0).collect()


def test_seven_days_are_the_sum_of_each(spark: SparkSession) -> None:
    samples = draw_samples(700, seed=3)
    samples["date"] = [
        FIRST + timedelta(days=int(day)) for day in np.random.default_rng(1).integers(0, 7, len(samples))
    ]
    values = make_values(spark)
    days = [group for _, group in samples.groupby("date")]
    stored = [drop_ids(build_logit_cells(make_samples(spark, day), values, "f", has_weights=False)) for day in days]
    together = build_window_cells(reduce(DataFrame.unionByName, stored), values, FIRST + timedelta(days=6), 1.0)
    at_once = build_logit_cells(make_samples(spark, samples.assign(date=None), 3), values, "f", has_weights=False)
    keys = ["field_value_id", "cell"]
    totals = [frame.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in SUMS)) for frame in (together, at_once)]
    assert len(days) == 7
    assert_table(totals[0], totals[1], keys)  # to the last bit
