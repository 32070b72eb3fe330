"""The parent of every field value."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from adacalib.schemas import FIELD_VALUE_PARENTS, check_schema
from adacalib.stats.field_value_parents import build_field_value_parents
from tests.assert_table import assert_table

Row = tuple[str | None, str | None, float]


def make_rows(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, "field__shop string, parent string, weight double").repartition(3)


def make_ids(spark: SparkSession, values: list[str | None]) -> DataFrame:
    """Ids 1, 2, … of the shops; a category of the same values beside them, which must not interfere."""
    rows = [("shop", value, k) for k, value in enumerate(values, start=1)]
    rows += [("category__kind", value, 90 + k) for k, value in enumerate(values)]
    return spark.createDataFrame(rows, "name string, value string, value_id int")


def make_row(field_value_id: int, parent: str | None, parent_id: int, n_parents: int) -> dict[str, object]:
    return {
        "field": "shop",
        "field_value_id": field_value_id,
        "parent": parent,
        "parent_id": parent_id,
        "n_parents": n_parents,
    }


def test_parents_by_hand(spark: SparkSession) -> None:
    rows: list[Row] = [
        *([("a", "town", 1.0)] * 3),  # 3 rows of town outweigh one of city that weighs 2.5
        ("a", "city", 2.5),
        ("b", "village", 1.0),  # a tie: city comes first by name
        ("b", "city", 1.0),
        ("b", None, 9.0),  # no parent is none of its parents
        ("c", None, 1.0),
        (None, "village", 1.0),
        ("", "", 1.0),  # empty texts are values like others
    ]
    # chosen: a town, b city, null village, "" ""; in order of the names: "" 1, city 2, town 3, village 4
    table = build_field_value_parents(make_rows(spark, rows), make_ids(spark, ["a", "b", "c", None, ""]), "shop")
    check_schema(table.schema, FIELD_VALUE_PARENTS, "field_value_parents")
    expected = [
        make_row(1, "town", 3, 2),
        make_row(2, "city", 2, 2),
        make_row(3, None, 0, 0),
        make_row(4, "village", 4, 1),
        make_row(5, "", 1, 1),
    ]
    assert_table(table, expected, ["field_value_id"])


def test_a_parent_that_nobody_keeps_gets_no_id(spark: SparkSession) -> None:
    # "alone" is never the heaviest, so the ids of the others have no gap
    rows: list[Row] = [("x", "alone", 1.0), ("x", "best", 2.0), ("y", "cosy", 1.0)]
    table = build_field_value_parents(make_rows(spark, rows), make_ids(spark, ["x", "y"]), "shop")
    assert_table(table, [make_row(1, "best", 1, 2), make_row(2, "cosy", 2, 1)], ["field_value_id"])


def test_no_parent_at_all_gives_none_to_everyone(spark: SparkSession) -> None:
    table = build_field_value_parents(make_rows(spark, [("x", None, 1.0)]), make_ids(spark, ["x"]), "shop")
    assert_table(table, [make_row(1, None, 0, 0)], ["field_value_id"])


def test_it_is_a_count_in_python_whatever_the_partitions(spark: SparkSession) -> None:
    rng = np.random.default_rng(4)
    rows: list[Row] = [
        (f"s{rng.integers(12)}", f"p{rng.integers(5)}" if rng.random() < 0.8 else None, float(rng.choice([0.1, 0.2])))
        for _ in range(300)
    ]
    values = sorted({shop for shop, _, _ in rows})
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for shop, parent, weight in rows:
        if parent is not None:
            totals[shop][parent] += round(10 * weight)  # exact, so ties are ties
    chosen = {shop: min(own, key=lambda parent: (-own[parent], parent)) for shop, own in totals.items()}
    names = sorted(set(chosen.values()))
    expected = [
        make_row(k, chosen[shop], names.index(chosen[shop]) + 1, len(totals[shop]))
        for k, shop in enumerate(values, start=1)
    ]
    for n_partitions in (1, 5):
        frame = make_rows(spark, rows).repartition(n_partitions, "weight")
        assert_table(build_field_value_parents(frame, make_ids(spark, values), "shop"), expected, ["field_value_id"])
