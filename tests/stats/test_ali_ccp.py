"""Lines of Ali-CCP become impressions and rejects."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from adacalib.stats import ali_ccp
from tests.ali_ccp_files import list_common_faults, list_skeleton_faults, name_index, write_common, write_skeleton

INDEX = "23bd0f75de327c60"
USER = [("101", "31", "1.0"), ("122", "9", "1.0"), ("122", "4", "1.0"), ("109_14", "1", ".5"), ("109_14", "2", "2.25")]
ITEM = [
    ("216", "9181078", "1.0"),
    ("301", "9351665", "1.0"),
    ("210", "5", "1.0"),
    ("508", "6", "0.6"),
    ("853", "7", "1"),
]


def make_lines(spark: SparkSession, lines: list[tuple[str, str]]) -> DataFrame:
    return spark.createDataFrame(lines, "half string, line string").repartition(2)


def test_parse_by_hand(spark: SparkSession) -> None:
    lines = make_lines(spark, [("train", write_skeleton(1, 1, 0, INDEX, ITEM))])
    row = ali_ccp.parse_skeleton(lines).collect()[0].asDict()
    assert (row["sample_id"], row["click"], row["conversion"], row["common_feature_index"]) == ("1", 1, 0, INDEX)
    assert (row["item_brand"], row["position"], row["item"]) == ("9181078", "9351665", None)
    assert (row["item_intentions_n"], row["item_intentions_weight"]) == (1, 1.0)
    assert (row["category_match"], row["intention_match"], row["shop_match"]) == (0.6, 1.0, None)
    assert row["reasons"] == row["several"] == []

    row = ali_ccp.parse_common(make_lines(spark, [("train", write_common(INDEX, USER))])).collect()[0].asDict()
    # of the two user groups the first in the list counts, and it is said that there are two
    assert (row["user_id"], row["user_group"], row["user_age"]) == ("31", "9", None)
    assert (row["user_categories_n"], row["user_categories_weight"]) == (2, 2.75)
    assert (row["user_shops_n"], row["user_shops_weight"]) == (0, 0.0)
    assert row["several"] == ["user_group"] and row["line"] is None


@pytest.fixture(scope="module")
def marked(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Skeleton and common lines of every fault among good ones, with all reasons added."""
    skeleton_lines = [("train", line) for line, _ in list_skeleton_faults()]
    skeleton_lines += [(half, write_skeleton(1, 1, 1, name_index(half, 1), ITEM)) for half in ("train", "test")]
    common_lines = [("train", line) for line, _ in list_common_faults()]
    common_lines += [(half, write_common(name_index(half, 1), USER)) for half in ("train", "test")]
    common = ali_ccp.parse_common(make_lines(spark, common_lines)).persist()
    skeleton = ali_ccp.parse_skeleton(make_lines(spark, skeleton_lines))
    repeated, orphans = ali_ccp.find_repeated(skeleton, "sample_id"), ali_ccp.find_orphans(skeleton, common)
    skeleton = ali_ccp.add_reason(skeleton, repeated, ali_ccp.REPEATED_SAMPLE, broadcast=False)
    skeleton = ali_ccp.add_reason(skeleton, orphans, ali_ccp.NO_COMMON_LINE, broadcast=True)
    return skeleton.persist(), common


def test_every_fault_is_named(marked: tuple[DataFrame, DataFrame]) -> None:
    wanted: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    for file, faults in (
        ("sample_skeleton_train", list_skeleton_faults()),
        ("common_features_train", list_common_faults()),
    ):
        wanted.update((file, line, tuple(sorted(reasons))) for line, reasons in faults)
    rejects = ali_ccp.build_rejects(*marked).collect()
    found = Counter({(r["file"], r["line"], tuple(sorted(r["reason"].split("; ")))): r["n_rows"] for r in rejects})
    assert found == wanted
    assert len(rejects) == len(wanted), "one row per distinct line"


def test_good_lines_pass_the_faults_by(marked: tuple[DataFrame, DataFrame]) -> None:
    """The same sample_id in both halves is no repetition; each half joins its own common line."""
    samples = ali_ccp.build_samples(*marked, seed=1, n_partitions=2).collect()
    assert sorted((row["sample_id"], row["user_group"]) for row in samples) == [("test-1", "9"), ("train-1", "9")]
    assert {row["split"] for row in samples if row["sample_id"] == "test-1"} == {"test"}
    assert samples[0].asDict().keys() == {*ali_ccp.SAMPLE_COLUMNS, "several"}


def split_ids(spark: SparkSession, n_rows: int, seed: int) -> dict[str, str]:
    skeleton = [("train", write_skeleton(i, 0, 0, INDEX, ITEM)) for i in range(n_rows)]
    parsed = ali_ccp.parse_skeleton(make_lines(spark, skeleton))
    common = ali_ccp.parse_common(make_lines(spark, [("train", write_common(INDEX, USER))]))
    samples = ali_ccp.build_samples(parsed, common, seed, 5)
    return {row["sample_id"]: row["split"] for row in samples.select("sample_id", "split").collect()}


def test_train_half_is_dealt_one_to_one_by_the_seed(spark: SparkSession) -> None:
    n_rows = 1000
    first = split_ids(spark, n_rows, seed=1)
    # 1000 fair coins: mean 500, standard deviation 15.8; five of them are 79
    assert abs(sum(split == "train" for split in first.values()) - n_rows / 2) < 79
    assert set(first.values()) == {"train", "dev"}
    assert split_ids(spark, n_rows, seed=1) == first
    second = split_ids(spark, n_rows, seed=2)
    # another seed moves about half of the rows
    assert abs(sum(first[key] != second[key] for key in first) - n_rows / 2) < 79


def test_counts(spark: SparkSession, marked: tuple[DataFrame, DataFrame]) -> None:
    samples = ali_ccp.build_samples(*marked, seed=1, n_partitions=2)
    counted: dict[str, Any] = {row["split"]: row.asDict() for row in ali_ccp.count_samples(samples).collect()}
    test = counted["test"]
    assert (test["n_samples"], test["n_clicks"], test["n_conversions"]) == (1, 1, 1)
    assert (test["missing__user_group"], test["missing__user_age"], test["missing__item"]) == (0, 1, 1)
    assert (test["missing__user_shops_n"], test["missing__shop_match"]) == (0, 1)
    several = samples.agg(*ali_ccp.count_several()).collect()[0].asDict()
    assert {name: n for name, n in several.items() if n} == {"user_group": 2}
