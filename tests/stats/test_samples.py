"""Samples: splits, ids, encoded rows."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib.config import SplitConfig
from adacalib.schemas import FIELD_VALUE_PARENTS, check_schema
from adacalib.schemas import samples as samples_schema
from adacalib.stats.feature_encodings import NumericEncoding
from adacalib.stats.field_values import assign_value_ids
from adacalib.stats.samples import (
    assign_sample_ids,
    assign_split,
    build_samples,
    count_samples,
    find_empty_splits,
    find_split_dates,
    split_by_date,
    split_by_hash,
)
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import make_config

DAY = date(2024, 3, 1)


def days(*counts: int) -> list[tuple[date, float]]:
    return [(DAY + timedelta(days=i), 1.0) for i, count in enumerate(counts) for _ in range(count)]


@pytest.mark.parametrize(
    ("counts", "shares", "last_train", "last_dev"),
    [
        ((2, 2, 2, 2, 2), (0.6, 0.2, 0.2), 2, 3),
        ((5, 1, 1, 1, 2), (0.5, 0.2, 0.3), 0, 2),
        ((9, 1), (0.6, 0.2, 0.2), 0, 0),  # the first day is more than train and dev: the second is all of test
        ((1, 9), (0.6, 0.2, 0.2), 1, 1),  # the second day begins within train
        ((2, 2, 1, 5), (0.1, 0.2, 0.7), 0, 1),  # .1 + .2 is a hair more than .3: the third day must not slip in
        ((1, 1, 1), (0.5, 0.0, 0.5), 1, 1),
    ],
)
def test_split_dates_by_hand(
    spark: SparkSession, counts: tuple[int, ...], shares: tuple[float, float, float], last_train: int, last_dev: int
) -> None:
    split = SplitConfig(by="date", train=shares[0], dev=shares[1], test=shares[2])
    rows = spark.createDataFrame(days(*counts), "date date, weight double")
    assert find_split_dates(rows, split) == (DAY + timedelta(days=last_train), DAY + timedelta(days=last_dev))


def test_split_dates_count_weights_not_rows(spark: SparkSession) -> None:
    # weights of the days 1, 1, 8: by rows the third day would begin behind train's 60 %, by weight it begins at 20 %
    rows = spark.createDataFrame(
        [(DAY + timedelta(days=i), w) for i, w in enumerate((1.0, 1.0, 8.0))], "date date, weight double"
    )
    assert find_split_dates(rows, SplitConfig(by="date")) == (DAY + timedelta(days=2), DAY + timedelta(days=2))
    assert find_split_dates(rows.withColumn("weight", F.lit(1.0)), SplitConfig(by="date"))[0] == DAY + timedelta(days=1)


def test_date_split_is_closed_at_its_ends(spark: SparkSession) -> None:
    rows = spark.createDataFrame(days(1, 1, 1, 1), "date date, weight double")
    found = rows.select("date", split_by_date(F.col("date"), DAY, DAY + timedelta(days=2)).alias("s"))
    assert [row["s"] for row in collect_rows(found, ["date"])] == ["train", "dev", "dev", "test"]


def test_hash_split_keeps_its_shares(spark: SparkSession) -> None:
    split = SplitConfig(train=0.5, dev=0.3, test=0.2)
    rows = spark.range(4000).select((F.col("id") % 2000).alias("h"))
    dealt = [
        {row.h: row.s for row in rows.select("h", split_by_hash(F.col("h"), split, seed).alias("s")).collect()}
        for seed in (1, 1, 2)
    ]
    assert dealt[0] == dealt[1] != dealt[2]
    assert rows.select("h", split_by_hash(F.col("h"), split, 1).alias("s")).distinct().count() == 2000
    counts = [list(dealt[0].values()).count(name) for name in ("train", "dev", "test")]
    for count, expected in zip(counts, (1000, 600, 400), strict=True):
        assert abs(count - expected) < 112  # five standard deviations of the largest


def test_split_without_dev_has_none(spark: SparkSession) -> None:
    split = SplitConfig(train=0.5, dev=0.0, test=0.5)
    found = spark.range(500).select(split_by_hash(F.col("id"), split, 7).alias("s")).distinct()
    assert {row.s for row in found.collect()} == {"train", "test"}


@pytest.mark.parametrize("by", ["hash", "date", "column"])
def test_rows_of_test_only_go_to_test_and_move_no_other_row(spark: SparkSession, by: str) -> None:
    # 40 rows of 10 days, column p in turn; every third row is for the future only
    rows = spark.range(40).select(
        F.col("id").alias("sample_id"),
        F.date_add(F.lit(DAY), (F.col("id") / 4).cast("int")).alias("date"),
        F.element_at(F.array(F.lit("train"), F.lit("dev")), (F.col("id") % 2 + 1).cast("int")).alias("given_split"),
        (F.col("id") % 3 == 0).alias("is_test_only"),
        F.lit(1.0).alias("weight"),
    )
    split = SplitConfig(by=by, column="p" if by == "column" else None, test_only="given")  # type: ignore[arg-type]
    without = {
        r.sample_id: r.split for r in assign_split(rows.withColumn("is_test_only", F.lit(False)), split, 7).collect()
    }
    found = {r.sample_id: r.split for r in assign_split(rows, split, 7).collect()}
    assert found == {i: "test" if i % 3 == 0 else without[i] for i in range(40)}
    assert {without[i] for i in range(0, 40, 3)} >= {"train", "dev"}  # some would have gone elsewhere
    if by == "date":  # 6 of 10 days are train, 2 dev
        assert without == {i: "train" if i < 24 else "dev" if i < 32 else "test" for i in range(40)}


def test_sample_ids_are_unique_where_rows_repeat_and_hashes_collide(spark: SparkSession) -> None:
    # hash 255 occurs 3 times, two of them with another second hash: a collision keeps its order of the second hash
    rows = spark.createDataFrame(
        [(255, 9, "x"), (255, 9, "x"), (255, 5, "y"), (-1, 1, "z")], "row_hash long, second_hash long, v string"
    )
    for n_partitions in (1, 4):
        found = assign_sample_ids(rows.repartition(3), n_partitions)
        assert {(row["sample_id"], row["v"]) for row in collect_rows(found)} == {
            ("ff-1", "y"),
            ("ff-2", "x"),
            ("ff-3", "x"),
            ("ffffffffffffffff-1", "z"),
        }
        assert found.rdd.getNumPartitions() == n_partitions


INPUT = (
    "sample_id string, row_key string, label double, weight double, date date, true_probability double, "
    "own_logit float, split string, field__shop string, field__town string, category__kind string, "
    "numeric array<double>"
)
ROWS = [
    ("1-1", None, 1.0, 1.0, None, 0.75, 0.5, "train", "a", "t", "u", [10.0, 1.0]),
    ("2-1", "k", 0.0, 2.0, DAY, None, -0.5, "dev", "a", None, None, [None, 3.0]),
    ("3-1", None, 1.0, 1.0, None, 0.0, 0.0, "test", "new", "t", "new", [8.0, 2.0]),
]


def test_samples_by_hand(spark: SparkSession) -> None:
    # ids: shop a 1; town null 1, t 2 (one row each, null first); kind null 1, u 2; "new" is unseen
    config = make_config(
        Path("nowhere"),
        {
            "fields": ["shop", "town"],
            "features": {"numeric": ["x", "y"], "categorical": ["kind"]},
            "predictor": {"features": ["kind"]},
            "calibrator": {"auxiliary": {"features": ["y", "kind"]}},
        },
    )
    rows = spark.createDataFrame(ROWS, INPUT)
    columns = {"shop": "field__shop", "town": "field__town", "category__kind": "category__kind"}
    value_ids = assign_value_ids(rows.filter("split != 'test'"), columns)
    encodings = [NumericEncoding("x", 0, 9.0, 1.0), NumericEncoding("y", 0, 1.0, 2.0)]
    table = build_samples(rows, value_ids, encodings, config, broadcast=True)
    check_schema(table.schema, samples_schema(config.fields), "samples")
    names = (
        "sample_id", "row_key", "label", "weight", "date", "true_probability", "field_value_id_shop",
        "field_value_id_town", "parent_id", "own_logit",
        "predictor_features", "predictor_category_ids", "auxiliary_features", "auxiliary_category_ids", "split",
    )  # fmt: skip
    expected = [
        ("1-1", None, 1, 1.0, None, 0.75, 1, 2, 0, 0.5, [], [2], [0.0], [2], "train"),
        ("2-1", "k", 0, 2.0, DAY, None, 1, 1, 0, -0.5, [], [1], [1.0], [1], "dev"),
        ("3-1", None, 1, 1.0, None, 0.0, 0, 2, 0, 0.0, [], [0], [0.5], [0], "test"),
    ]
    assert_table(table, [dict(zip(names, row, strict=True)) for row in expected], ["sample_id"])


@pytest.mark.parametrize("broadcast", [True, False])
def test_parents_are_those_of_the_row(spark: SparkSession, broadcast: bool) -> None:
    # shop a kept parent p (1); "other" belongs to no value of train and dev; the third row names none
    config = make_config(Path("nowhere"), {"fields": ["shop"], "parent": "parent"})
    named = {"1-1": "p", "2-1": "other", "3-1": None}
    rows = spark.createDataFrame([(*row, named[str(row[0])]) for row in ROWS], INPUT + ", parent string")
    value_ids = assign_value_ids(rows.filter("split != 'test'"), {"shop": "field__shop"})
    parents = spark.createDataFrame([("shop", 1, "p", 1, 2), ("shop", 2, None, 0, 0)], FIELD_VALUE_PARENTS)
    table = build_samples(rows, value_ids, [], config, broadcast, parents)
    found = {row["sample_id"]: row["parent_id"] for row in collect_rows(table)}
    assert found == {"1-1": 1, "2-1": 0, "3-1": 0}


def test_counts_per_split(spark: SparkSession) -> None:
    # of the three rows in ROWS only the shop of the test row is not in train or dev
    rows = spark.createDataFrame(ROWS, INPUT)
    value_ids = assign_value_ids(rows.filter("split != 'test'"), {"shop": "field__shop", "town": "field__town"})
    expected = [
        {"split": "train", "n_samples": 1, "n_responses": 1, "n_unseen_shop": 0, "n_unseen_town": 0},
        {"split": "dev", "n_samples": 1, "n_responses": 0, "n_unseen_shop": 0, "n_unseen_town": 0},
        {"split": "test", "n_samples": 1, "n_responses": 1, "n_unseen_shop": 1, "n_unseen_town": 0},
    ]
    assert_table(count_samples(rows, value_ids, ["shop", "town"], broadcast=True), expected, ["split"])


def test_empty_splits_are_named_but_an_unwanted_dev_is_none() -> None:
    assert find_empty_splits({"train": 3, "dev": 1, "test": 1}, SplitConfig()) == []
    assert find_empty_splits({"train": 3}, SplitConfig()) == ["dev", "test"]
    assert find_empty_splits({"train": 3, "test": 1}, SplitConfig(train=0.8, dev=0.0, test=0.2)) == []
