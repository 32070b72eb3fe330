"""Raw rows: expressions, faults, hashes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from adacalib.config import RunConfig
from adacalib.stats.input_rows import (
    build_input_rows,
    filter_rows,
    find_array_lengths,
    find_input_faults,
    hash_columns,
)
from tests.assert_table import collect_rows
from tests.small_runs import make_config

SCHEMA = "id int, label double, score double, shop string, w double, day string, part string, x double, a array<double>"
GOOD = (1.0, 0.5, "a", 1.0, "2024-01-01", "train", 1.0, [1.0, 2.0])


def config_of(**changes: Any) -> RunConfig:
    every = {
        "input": {"weight": "w", "date": "day", "row_key": "id"},
        "split": {"by": "column", "column": "part"},
        "features": {"numeric": ["x", "a"]},
    }
    return make_config(Path("nowhere"), every | changes)


def make_raw(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame([(i, *row) for i, row in enumerate(rows)], SCHEMA)


def change(place: int, value: Any) -> tuple[Any, ...]:
    return (*GOOD[:place], value, *GOOD[place + 1 :])


FAULTY = [
    (GOOD, []),
    (change(0, None), ["label is null"]),
    (change(0, 0.5), ["label is not 0 or 1"]),
    (change(0, math.nan), ["label is not 0 or 1"]),
    (change(1, None), ["score is null"]),
    (change(1, math.nan), ["score is NaN"]),
    (change(1, math.inf), ["score is infinite"]),
    (change(1, -math.inf), ["score is infinite"]),
    (change(1, 1.0000001), ["score is outside [0, 1]"]),
    (change(1, -1e-12), ["score is outside [0, 1]"]),
    (change(1, 0.0), []),
    (change(1, 1.0), []),
    (change(2, None), []),  # a value of its own
    (change(2, ""), []),
    (change(3, 0.0), ["weight is not a positive number"]),
    (change(3, -1.0), ["weight is not a positive number"]),
    (change(3, None), ["weight is not a positive number"]),
    (change(3, math.nan), ["weight is not a positive number"]),
    (change(3, math.inf), ["weight is not a positive number"]),
    (change(4, "no day"), ["date is null or no date"]),
    (change(4, None), ["date is null or no date"]),
    (change(5, "validation"), ["split is not train, dev or test"]),
    (change(5, None), ["split is not train, dev or test"]),
    (change(6, None), []),  # becomes the mean
    (change(6, math.inf), ["feature x is not finite"]),
    (change(7, [1.0]), ["feature a has another length than 2"]),
    (change(7, None), ["feature a has another length than 2"]),
    (change(7, [1.0, math.nan]), ["feature a is not finite"]),
    (change(7, [1.0, None]), []),
    ((2.0, math.nan, "a", -1.0, "2024-01-01", "train", 1.0, [1.0, 2.0]),
     ["label is not 0 or 1", "weight is not a positive number", "score is NaN"]),
]  # fmt: skip


def test_every_fault_of_a_row_is_named(spark: SparkSession) -> None:
    raw = make_raw(spark, [row for row, _ in FAULTY])
    rows = collect_rows(build_input_rows(raw, config_of(), {"x": None, "a": 2}))
    found = {int(row["row_key"]): row["reasons"] for row in rows}
    assert found == {i: reasons for i, (_, reasons) in enumerate(FAULTY)}
    assert {int(row["row_key"]) for row in rows if row["raw_row"] is not None} == {
        i for i, (_, reasons) in enumerate(FAULTY) if reasons
    }


def test_good_row_by_hand(spark: SparkSession) -> None:
    # logit(.75) = ln 3 = 1.0986123; the array's null stays null until the mean is known
    raw = make_raw(spark, [(1.0, 0.75, "a", 2.5, "2024-01-31", "dev", 7.0, [None, 3.0])])
    row = collect_rows(build_input_rows(raw, config_of(), {"x": None, "a": 2}))[0]
    assert (row["label"], row["weight"], str(row["date"]), row["row_key"]) == (1.0, 2.5, "2024-01-31", "0")
    assert row["own_logit"] == pytest.approx(1.0986123, abs=1e-7)
    assert (row["is_clipped"], row["given_split"], row["field__shop"]) == (False, "dev", "a")
    # a tenth of the negatives kept: log-odds ln 3 + ln .1
    sampled = collect_rows(
        build_input_rows(raw, config_of(input={"negative_sampling_rate": 0.1}), {"x": None, "a": 2})
    )[0]
    assert sampled["own_logit"] == pytest.approx(math.log(0.3), abs=1e-6)
    assert row["numeric"] == [7.0, None, 3.0]


TRUTH_FAULT = "true probability is outside [0, 1]"


@pytest.mark.parametrize(
    ("truth", "reasons"),
    [
        (0.0, []),
        (1.0, []),
        (0.25, []),
        (None, ["true probability is null"]),
        (math.nan, [TRUTH_FAULT]),
        (math.inf, [TRUTH_FAULT]),
        (1.0000001, [TRUTH_FAULT]),
        (-1e-12, [TRUTH_FAULT]),
    ],
)
def test_truth_is_a_probability(spark: SparkSession, truth: float | None, reasons: list[str]) -> None:
    raw = make_raw(spark, [change(6, truth)])
    row = collect_rows(build_input_rows(raw, config_of(input={"truth": "x"}, features={}), {}))[0]
    assert row["reasons"] == reasons
    if not reasons:
        assert row["true_probability"] == truth
    unasked = collect_rows(build_input_rows(raw, config_of(features={}), {}))[0]
    assert (unasked["reasons"], unasked["true_probability"]) == ([], None)


def test_test_only_is_a_condition_that_null_does_not_meet(spark: SparkSession) -> None:
    raw = make_raw(spark, [change(6, value) for value in (1.0, 3.0, None)])
    rows = collect_rows(build_input_rows(raw, config_of(split={"test_only": "x > 2"}), {}), ["row_key"])
    assert [row["is_test_only"] for row in rows] == [False, True, False]
    assert [row["is_test_only"] for row in collect_rows(build_input_rows(raw, config_of(), {}))] == [False] * 3


def test_row_filter_drops_false_and_null(spark: SparkSession) -> None:
    raw = make_raw(spark, [change(6, value) for value in (1.0, 3.0, None)])
    kept = filter_rows(raw, config_of(input={"row_filter": "x > 2"}))
    assert [row["id"] for row in collect_rows(kept)] == [1]
    assert filter_rows(raw, config_of()).count() == 3


def test_array_length_is_the_most_frequent_one(spark: SparkSession) -> None:
    arrays = [[1.0], [1.0, 2.0], [3.0, 4.0], None, [1.0, 2.0, 3.0]]
    raw = make_raw(spark, [change(7, array) for array in arrays])
    assert find_array_lengths(raw, config_of()) == {"x": None, "a": 2}
    # one of each length: the smaller counts; nothing but nulls: no component
    assert find_array_lengths(make_raw(spark, [change(7, [1.0]), change(7, [1.0, 2.0])]), config_of())["a"] == 1
    assert find_array_lengths(make_raw(spark, [change(7, None)]), config_of())["a"] == 0


def test_fitting_table_has_no_fault(spark: SparkSession) -> None:
    assert find_input_faults(make_raw(spark, [GOOD]), config_of()) == []


def test_all_unfit_columns_are_listed_at_once(spark: SparkSession) -> None:
    config = config_of(
        input={
            "label": "shop",
            "score": "skore",
            "weight": "a",
            "date": "w",
            "row_filter": "x +",
            "row_key": "a",
            "truth": "part",
        },
        split={"by": "column", "column": "x", "test_only": "w"},
        fields=["a", "town"],
        features={"numeric": {"n": "shop"}, "categorical": ["a"]},
    )
    faults = find_input_faults(make_raw(spark, [GOOD]), config)
    expected = [
        r"input.row_filter: 'x \+': .*PARSE_SYNTAX_ERROR",
        "input.label: 'shop' is string, expected a number or condition",
        "input.score: 'skore': .*UNRESOLVED_COLUMN.*`skore`",
        "input.weight: 'a' is array<double>, expected a number",
        "input.date: 'w' is double, expected a date",
        "input.row_key: 'a' is array<double>, expected a plain value",
        "input.truth: 'part' is string, expected a number",
        "split.column: 'x' is double, expected text",
        "split.test_only: 'w' is double, expected a condition",
        "fields: '`a`' is array<double>, expected a plain value",
        "fields: '`town`': .*UNRESOLVED_COLUMN.*`town`",
        "features.numeric.n: 'shop' is string, expected a number or an array of numbers",
        "features.categorical.a: 'a' is array<double>, expected a plain value",
    ]
    assert len(faults) == len(expected)
    for fault, pattern in zip(faults, expected, strict=True):
        with pytest.raises(ValueError, match=pattern):
            raise ValueError(fault)


def test_hash_tells_rows_apart_and_knows_no_column_order(spark: SparkSession) -> None:
    rows = [(None, "a", [1.0, None]), ("a", None, [1.0, None]), (None, "a", [None, 1.0]), (None, "a", None)]
    raw = spark.createDataFrame(rows, "p string, q string, r array<double>")
    hashes = [row.h for row in raw.select(hash_columns(raw, 0).alias("h")).collect()]
    assert len(set(hashes)) == 4
    turned = raw.select("r", "q", "p")
    assert [row.h for row in turned.select(hash_columns(turned, 0).alias("h")).collect()] == hashes
    assert [row.h for row in raw.select(hash_columns(raw, 1).alias("h")).collect()] != hashes
