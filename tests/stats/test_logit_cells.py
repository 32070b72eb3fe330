"""Logit cells: one aggregation over rows."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib.schemas import LOGIT_CELLS, check_schema
from adacalib.stats.logit_cells import (
    LOGIT_UNIT,
    MAX_FIELD_VALUE_ID,
    assign_cell,
    build_logit_cells,
)
from tests.assert_table import assert_table, collect_rows
from tests.stats.small_samples import draw_samples, make_samples, make_values, samples_by_hand

KEY = ["date", "field_value_id", "cell"]


def sum_cells_with_pandas(samples: pd.DataFrame) -> list[dict]:
    """The table without dates, from rows."""
    logit = samples["uncalibrated_logit"].astype(np.float64)
    frame = pd.DataFrame(
        {
            "field_value_id": samples["field_value_id_f"],
            "cell": np.floor(logit * 32).astype(int),
            "n_samples": 1,
            "n_responses": samples["label"].astype(int),
            "sum_logit": np.rint(logit * 2**20).astype(int),  # halves to even
            "sum_weight": samples["weight"],
            "sum_weight_responses": samples["weight"] * samples["label"],
            "sum_weight_logit": samples["weight"] * logit,
        }
    )
    rows = frame.groupby(["field_value_id", "cell"]).sum().reset_index().to_dict("records")
    named = {"field": "f", "value_kind": "value", "date": None}
    return [{**named, **row, "field_value": f"v{row['field_value_id']}"} for row in rows]


@pytest.mark.parametrize(
    ("logit", "cell"),
    [(0.0, 0), (0.03125, 1), (0.0312, 0), (-1e-9, -1), (-0.03125, -1), (-0.0313, -2), (16.1181, 515), (-16.1181, -516)],
)
def test_cell_is_closed_below(spark: SparkSession, logit: float, cell: int) -> None:
    assert spark.range(1).select(assign_cell(F.lit(logit)).alias("c")).first().c == cell


def test_cells_by_hand(spark: SparkSession) -> None:
    # value 1: .01 and .02 share cell 0 (one response), -.01 is in cell -1; value 2: cell 32
    samples = samples_by_hand([(1, 0.015625, 1), (1, 0.0234375, 0), (1, -0.015625, 1), (2, 1.0, 0)], date(2024, 1, 2))
    cells = build_logit_cells(make_samples(spark, samples), make_values(spark), "f", has_weights=False)
    common = {"date": date(2024, 1, 2), "field": "f", "value_kind": "value"}
    unit = int(LOGIT_UNIT)
    expected = [
        common | {"field_value": "v1", "field_value_id": 1, "cell": 0, "n_samples": 2, "n_responses": 1,
                  "sum_logit": unit * 5 // 128, "sum_weight": 2.0, "sum_weight_responses": 1.0,
                  "sum_weight_logit": 0.0390625},
        common | {"field_value": "v1", "field_value_id": 1, "cell": -1, "n_samples": 1, "n_responses": 1,
                  "sum_logit": -unit // 64, "sum_weight": 1.0, "sum_weight_responses": 1.0,
                  "sum_weight_logit": -0.015625},
        common | {"field_value": "v2", "field_value_id": 2, "cell": 32, "n_samples": 1, "n_responses": 0,
                  "sum_logit": unit, "sum_weight": 1.0, "sum_weight_responses": 0.0, "sum_weight_logit": 1.0},
    ]  # fmt: skip
    assert_table(cells, expected, KEY)
    check_schema(cells.schema, LOGIT_CELLS, "logit_cells")


@pytest.mark.parametrize("weighted", [True, False])
def test_cells_agree_with_pandas_on_any_partitioning(spark: SparkSession, weighted: bool) -> None:
    samples = draw_samples(weighted=weighted)
    expected = sum_cells_with_pandas(samples)
    for n_partitions in (1, 5):
        rows = make_samples(spark, samples, n_partitions)
        cells = build_logit_cells(rows, make_values(spark), "f", has_weights=weighted)
        assert_table(cells, expected, KEY, rtol=1e-12, atol=0 if weighted else 1e-5)


def test_days_add_up_to_the_cells(spark: SparkSession) -> None:
    samples = draw_samples()
    samples["date"] = [date(2024, 1, 1 + i % 2) for i in range(len(samples))]
    cells = build_logit_cells(make_samples(spark, samples), make_values(spark), "f")
    assert len({row["date"] for row in collect_rows(cells)}) == 2
    added = cells.groupBy("field_value_id", "cell").agg(F.sum("n_samples").alias("n"), F.sum("sum_logit").alias("s"))
    expected = [
        {"field_value_id": row["field_value_id"], "cell": row["cell"], "n": row["n_samples"], "s": row["sum_logit"]}
        for row in sum_cells_with_pandas(samples)
    ]
    assert_table(added, expected, ["field_value_id", "cell"])


def test_row_given_twice_equals_weight_two(spark: SparkSession) -> None:
    samples = draw_samples(60, weighted=True)
    heavy = samples.assign(weight=2 * samples["weight"])
    twice, once = (
        build_logit_cells(make_samples(spark, s), make_values(spark), "f")
        .select("field_value_id", "cell", "sum_weight", "sum_weight_responses", "sum_weight_logit")
        for s in (pd.concat([samples, samples]), heavy)
    )  # fmt: skip
    assert_table(twice, once, ["field_value_id", "cell"], rtol=1e-12)


def test_extreme_logits_ids_and_days_survive_packing(spark: SparkSession) -> None:
    limit, large = float(np.float32(16.118095)), MAX_FIELD_VALUE_ID
    samples = samples_by_hand([(large, limit, 1), (large, -limit, 0), (1, -limit, 0), (1, limit, 0), (0, 0.0, 1)])
    samples["date"] = [date.max, date.min, None, date(1970, 1, 1), date(1969, 12, 31)]
    values = spark.createDataFrame(
        [("f", "v", "value", large, 1, 1), ("f", "w", "value", 1, 1, 1), ("f", None, "unseen", 0, 0, 0)],
        make_values(spark).schema,
    )
    cells = build_logit_cells(make_samples(spark, samples), values, "f")
    found = {(row["field_value_id"], row["cell"], row["field_value"], row["date"]) for row in collect_rows(cells)}
    assert found == {
        (large, 515, "v", date.max),
        (large, -516, "v", date.min),
        (1, -516, "w", None),
        (1, 515, "w", date(1970, 1, 1)),
        (0, 0, None, date(1969, 12, 31)),
    }


def test_an_id_that_field_values_lack_is_refused(spark: SparkSession) -> None:
    samples = samples_by_hand([(1, 0.5, 1), (7, 0.5, 0)])
    with pytest.raises(Exception, match="no such id in field_values: 7"):
        build_logit_cells(make_samples(spark, samples), make_values(spark), "f").collect()


def test_a_key_is_computed_once_per_row(spark: SparkSession) -> None:
    # an inner join with the names would put a filter on the key before the aggregation, which computes it again
    cells = build_logit_cells(make_samples(spark, samples_by_hand([(1, 0.5, 1)])), make_values(spark), "f")
    plan = cells._jdf.queryExecution().optimizedPlan().toString()
    day = "719163"  # in every expression of the key
    assert day in plan and not [line for line in plan.splitlines() if "Filter" in line and day in line]
