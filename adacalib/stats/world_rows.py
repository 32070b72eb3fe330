"""Row ids → rows of a synthetic world, computed on the executors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from adacalib.worlds.parameters import World
from adacalib.worlds.rows import draw_rows

ROWS_PER_TASK = 500_000
"""Rows that one task makes, and one file holds: some 40 MB and about a second."""

# One row per row_id, unique.
WORLD_ROWS = StructType(
    [
        StructField("row_id", LongType(), nullable=False),
        StructField("field_value", StringType(), nullable=False),
        StructField("parent", StringType(), nullable=False),
        StructField("day", DateType(), nullable=False),
        *(StructField(f"x{i}", DoubleType(), nullable=False) for i in range(1, 5)),
        StructField("context", StringType(), nullable=False),
        StructField("score", DoubleType(), nullable=False),
        StructField("true_probability", DoubleType(), nullable=False),
        StructField("label", IntegerType(), nullable=False),
        StructField("is_new", BooleanType(), nullable=False),
    ]
)


def count_tasks(rows: int, cores: int) -> int:
    """Number of partitions for that many rows: ROWS_PER_TASK each at most, and work for every core."""
    return max(cores, math.ceil(rows / ROWS_PER_TASK))


def make_world_rows(row_ids: DataFrame, world: World) -> DataFrame:
    """One row per row id: the columns of WORLD_ROWS, whatever the partitions of the ids.

    Args:
        row_ids: one column of whole numbers from 0, of any name.
    """

    def draw(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = draw_rows(world, batch.column(0).to_numpy())
            yield pa.RecordBatch.from_arrays(
                [pa.array(columns[name]) for name in WORLD_ROWS.fieldNames()], names=WORLD_ROWS.fieldNames()
            )

    return row_ids.mapInArrow(draw, WORLD_ROWS)
