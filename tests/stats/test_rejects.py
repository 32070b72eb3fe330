"""Rejects: faulty rows with their reasons, counted."""

from __future__ import annotations

from pyspark.sql import SparkSession

from adacalib.stats.rejects import build_rejects, count_reasons
from tests.assert_table import assert_table

ROWS = [
    ([], None),
    (["label is null"], '{"id":1}'),
    (["label is null"], '{"id":1}'),
    (["label is null", "score is NaN"], '{"id":2}'),
    ([], None),
]


def test_same_faulty_row_stands_once_with_its_number(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS, "reasons array<string>, raw_row string").repartition(3)
    expected = [
        {"reason": "label is null", "row": '{"id":1}', "n_rows": 2},
        {"reason": "label is null; score is NaN", "row": '{"id":2}', "n_rows": 1},
    ]
    assert_table(build_rejects(rows), expected, ["reason", "row"])


def test_row_with_two_faults_counts_under_both(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS, "reasons array<string>, raw_row string")
    counted = [tuple(row) for row in count_reasons(rows).collect()]
    assert counted == [("label is null", 3), ("score is NaN", 1)]  # in order of the reason


def test_without_faults_there_is_nothing(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS[:1], "reasons array<string>, raw_row string")
    assert build_rejects(rows).count() == count_reasons(rows).count() == 0
