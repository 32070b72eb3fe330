"""Schemas: every discrepancy at once."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from adacalib import schemas
from adacalib.schemas import SchemaError, check_schema, id_column

EXPECTED = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("n", LongType(), nullable=False),
        StructField("x", ArrayType(FloatType(), containsNull=False), nullable=False),
    ]
)


def test_order_and_nullability_do_not_matter() -> None:
    actual = StructType(
        [StructField("x", ArrayType(FloatType())), StructField("n", LongType()), StructField("id", StringType())]
    )
    check_schema(actual, EXPECTED, "t")


def test_all_discrepancies_stand_in_one_message() -> None:
    actual = StructType(
        [
            StructField("n", IntegerType()),
            StructField("x", ArrayType(DoubleType())),
            StructField("more", StringType()),
        ]
    )
    message = (
        r"table t: missing column id \(string\); unexpected column more \(string\); "
        r"column n is int, expected bigint; column x is array<double>, expected array<float>"
    )
    with pytest.raises(SchemaError, match=message):
        check_schema(actual, EXPECTED, "t")


def test_tables_carry_one_id_per_field() -> None:
    for table in (schemas.samples, schemas.scored_samples, schemas.calibrated_samples):
        names = table(["shop", "town"]).fieldNames()
        assert [name for name in names if name.startswith("field_value_id")] == [id_column("shop"), id_column("town")]
        assert len(set(names)) == len(names)
        assert names[-1] == "split"  # the partition column of the folder comes last, where Spark puts it on reading
