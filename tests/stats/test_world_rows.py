"""Rows of a world made on executors: the pure function's rows, whatever the partitions of the ids."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib.stats.world_rows import ROWS_PER_TASK, WORLD_ROWS, count_tasks, make_world_rows
from adacalib.worlds.parameters import World
from adacalib.worlds.rows import draw_rows, make_world
from tests.assert_table import collect_rows


@pytest.fixture(scope="module")
def world() -> World:
    return make_world("ctr_like", seed=3)


def test_table_is_the_pure_function_of_its_ids(spark: SparkSession, world: World) -> None:
    table = make_world_rows(spark.range(0, 700, 1, 3), world)
    assert table.schema == WORLD_ROWS
    expected = draw_rows(world, np.arange(700))
    found = sorted(collect_rows(table), key=lambda row: row["row_id"])
    assert len(found) == 700
    for column in WORLD_ROWS.fieldNames():
        assert [row[column] for row in found] == expected[column].tolist(), column
    assert any(row["is_new"] for row in found)


@pytest.mark.parametrize("partitions", [1, 7])
def test_rows_know_neither_partitions_nor_total(spark: SparkSession, world: World, partitions: int) -> None:
    small = make_world_rows(spark.range(0, 200, 1, 2), world)
    large = make_world_rows(spark.range(0, 900, 1, partitions), world)
    shared = {row.row_id: row for row in large.collect() if row.row_id < 200}
    assert shared == {row.row_id: row for row in small.collect()}


def test_number_of_tasks_by_hand() -> None:
    assert count_tasks(1, cores=2) == 2  # every core has work
    assert count_tasks(4 * ROWS_PER_TASK, cores=2) == 4
    assert count_tasks(4 * ROWS_PER_TASK + 1, cores=2) == 5
    assert count_tasks(10**9, cores=2) == 2000
