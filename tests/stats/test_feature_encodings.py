"""Standardisation of numeric features."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from adacalib.stats.feature_encodings import (
    FeatureError,
    NumericEncoding,
    build_feature_encodings,
    encode_numeric,
    learn_numeric_encodings,
)
from adacalib.stats.field_values import assign_value_ids
from tests.assert_table import assert_table, collect_rows


def make_rows(spark: SparkSession, rows: list[list[float | None]], n_partitions: int = 2) -> DataFrame:
    return spark.createDataFrame([(row, 1.0) for row in rows], "numeric array<double>, weight double").repartition(
        n_partitions
    )


def test_mean_and_scale_by_hand(spark: SparkSession) -> None:
    # x: 1, 3, null → mean 2, deviation 1; a[0]: 5 throughout → scale 1; a[1]: never there → mean 0, scale 1
    rows = make_rows(spark, [[1.0, 5.0, None], [3.0, 5.0, None], [None, 5.0, None]])
    assert learn_numeric_encodings(rows, {"x": None, "a": 2}) == [
        NumericEncoding("x", 0, 2.0, 1.0),
        NumericEncoding("a", 0, 5.0, 1.0),
        NumericEncoding("a", 1, 0.0, 1.0),
    ]


def test_encoded_features_by_hand(spark: SparkSession) -> None:
    encodings = [
        NumericEncoding("x", 0, 2.0, 4.0),
        NumericEncoding("y", 0, 0.0, 1.0),
        NumericEncoding("a", 0, 1.0, 1.0),
    ]
    rows = make_rows(spark, [[10.0, 7.0, None]])
    encoded = rows.select(
        encode_numeric(encodings, ("x", "a")).alias("two"), encode_numeric(encodings, ()).alias("none")
    )
    assert collect_rows(encoded) == [{"two": [2.0, 0.0], "none": []}]
    assert encoded.schema.simpleString() == "struct<two:array<float>,none:array<float>>"


def test_without_numeric_features_there_is_nothing(spark: SparkSession) -> None:
    assert learn_numeric_encodings(make_rows(spark, [[]]), {}) == []


def test_encodings_agree_with_numpy_on_any_partitioning(spark: SparkSession) -> None:
    x = np.random.default_rng(1).normal(50, 3, 200)
    found = [
        learn_numeric_encodings(make_rows(spark, [[v] for v in x.tolist()], n), {"x": None}, has_weights=has_weights)
        for n in (1, 4)
        for has_weights in (False, True)
    ]
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][0].mean == pytest.approx(x.mean(), rel=1e-6)
    assert found[0][0].scale == pytest.approx(x.std(), rel=1e-5)


@pytest.mark.parametrize("offset", [1e9, -1234567891.0])
def test_large_offset_is_taken_off_exactly(spark: SparkSession, offset: float) -> None:
    # seconds since 1970 and the like: the mean must be as exact as the spread needs, not as its own size allows
    x = offset + np.random.default_rng(2).normal(0, 30, 200)
    rows = make_rows(spark, [[v, offset] for v in x.tolist()])
    encodings = learn_numeric_encodings(rows, {"x": None, "constant": None})
    encoded = np.array([row["v"] for row in collect_rows(rows.select(encode_numeric(encodings, ("x",)).alias("v")))])
    np.testing.assert_allclose([encoded.mean(), encoded.std()], [0, 1], atol=1e-4)
    assert encodings[1] == NumericEncoding("constant", 0, offset, 1.0)


def test_overflowing_feature_is_refused(spark: SparkSession) -> None:
    with pytest.raises(FeatureError, match=r"features.numeric.x: values from -1e\+200 to 1e\+200 have no finite"):
        learn_numeric_encodings(make_rows(spark, [[1e200], [-1e200]]), {"x": None})


def test_table_holds_what_a_service_needs(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("u", 1.0), ("u", 0.0), (None, 1.0)], "category__kind string, label double")
    ids = assign_value_ids(rows, {"category__kind": "category__kind"})
    table = build_feature_encodings(ids, [NumericEncoding("x", 1, 2.0, 4.0)], ["kind"])
    nothing = {"category": None, "category_id": None, "mean": None, "scale": None}
    category = nothing | {"feature": "kind", "kind": "categorical", "component": 0}
    expected = [
        category | {"category": "u", "category_id": 1},
        category | {"category": None, "category_id": 2},
        nothing | {"feature": "x", "kind": "numeric", "component": 1, "mean": 2.0, "scale": 4.0},
    ]
    assert_table(table, expected, ["feature", "category_id"])
