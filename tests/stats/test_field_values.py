"""Dense ids of field values and categories."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from adacalib.stats.field_values import assign_value_ids, build_field_values, join_value_ids
from tests.assert_table import assert_table, collect_rows

ROWS = [("b", "x", 1.0)] * 2 + [("a", "x", 0.0)] * 2 + [(None, "", 1.0), ("", "x", 0.0), ("c", "x", 1.0)] + [
    ("c", None, 0.0)
] * 2  # fmt: skip
COLUMNS = {"shop": "field__shop", "category__kind": "category__kind"}


def make_rows(spark: SparkSession, rows: list[tuple[str | None, str | None, float]] = ROWS) -> DataFrame:
    return spark.createDataFrame(rows, "field__shop string, category__kind string, label double")


def test_ids_by_hand(spark: SparkSession) -> None:
    # shop: c 3 rows; a and b 2 each, in order of the text; null and "" 1 each, null first
    # kind: x 6 rows, null 2, "" 1
    expected = [
        {"name": "shop", "value": "c", "value_id": 1, "n_samples": 3, "n_responses": 1},
        {"name": "shop", "value": "a", "value_id": 2, "n_samples": 2, "n_responses": 0},
        {"name": "shop", "value": "b", "value_id": 3, "n_samples": 2, "n_responses": 2},
        {"name": "shop", "value": None, "value_id": 4, "n_samples": 1, "n_responses": 1},
        {"name": "shop", "value": "", "value_id": 5, "n_samples": 1, "n_responses": 0},
        {"name": "category__kind", "value": "x", "value_id": 1, "n_samples": 6, "n_responses": 3},
        {"name": "category__kind", "value": None, "value_id": 2, "n_samples": 2, "n_responses": 0},
        {"name": "category__kind", "value": "", "value_id": 3, "n_samples": 1, "n_responses": 1},
    ]
    assert_table(assign_value_ids(make_rows(spark), COLUMNS), expected, ["name", "value_id"])


def test_table_names_the_kinds_and_has_a_row_for_unseen(spark: SparkSession) -> None:
    table = build_field_values(assign_value_ids(make_rows(spark), COLUMNS), ["shop"])
    found = [
        (row["field_value_id"], row["field_value"], row["value_kind"], row["n_samples"])
        for row in collect_rows(table, ["field_value_id"])
    ]
    assert found == [
        (0, None, "unseen", 0),
        (1, "c", "value", 3),
        (2, "a", "value", 2),
        (3, "b", "value", 2),
        (4, None, "null", 1),
        (5, "", "value", 1),
    ]


@pytest.mark.parametrize("broadcast", [True, False])
def test_joined_ids_match_null_and_mark_the_unseen(spark: SparkSession, broadcast: bool) -> None:
    ids = assign_value_ids(make_rows(spark), COLUMNS)
    rows = spark.createDataFrame(
        [(1, "c"), (2, None), (3, ""), (4, "never seen"), (5, "C"), (6, "c")], "k int, v string"
    )
    joined = join_value_ids(rows, ids, "shop", "v", broadcast)
    found = {row["k"]: row["value_id__shop"] for row in collect_rows(joined)}
    assert found == {1: 1, 2: 4, 3: 5, 4: 0, 5: 0, 6: 1}
    assert joined.columns == ["k", "v", "value_id__shop"]


def test_ids_do_not_depend_on_partitions_and_agree_with_a_count(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    shops = [f"s{i}" for i in rng.geometric(0.2, 300)]
    rows = make_rows(spark, [(shop, "x", 1.0) for shop in shops])
    order = sorted(Counter(shops).items(), key=lambda item: (-item[1], item[0]))
    expected = [
        {"name": "shop", "value": shop, "value_id": i, "n_samples": n, "n_responses": n}
        for i, (shop, n) in enumerate(order, start=1)
    ]
    for n_partitions in (1, 5):
        ids = assign_value_ids(rows.repartition(n_partitions), {"shop": "field__shop"})
        assert_table(ids, expected, ["value_id"])
