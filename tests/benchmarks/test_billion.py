"""benchmarks/billion.py and what it measures with."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from adacalib import schemas
from benchmarks.billion import MAX_DRIVER_BYTES_PER_VALUE, _as_samples, judge, make_table
from benchmarks.scored_rows import make_scored_rows
from benchmarks.stage_costs import StageCost, measure_stage


def make_costs(cells_s: float, train_s: float, memory: int = 10**9, to_driver: int = 1000) -> dict[str, StageCost]:
    return {
        "logit_cells": StageCost(seconds=cells_s, peak_memory=memory, read=5 * 10**9),
        "train": StageCost(seconds=train_s, to_driver=to_driver),
    }


def test_bars_by_hand() -> None:
    sizes = {100: make_costs(2.0, 10.0), 1000: make_costs(10.0, 5.0), 10_000: make_costs(120.0, 19.0, 17 * 10**9)}
    per_row, train, memory, to_driver = judge(sizes)
    # .012 s a row against .010 of the next smaller size; 19 s of training against 10 of the smallest
    assert per_row[1:] == (pytest.approx(1.2), 1.15) and train[1:] == (pytest.approx(1.9), 1.8)
    assert memory[1:] == (17.0, 16.0)
    assert to_driver[1:] == (1e-6, MAX_DRIVER_BYTES_PER_VALUE * 969 / 1e9)


def test_one_size_has_no_growth() -> None:
    assert [text for text, *_ in judge({100: make_costs(1.0, 1.0)})] == [
        "peak memory, GB",
        "largest result at the driver, GB",
    ]


def test_table_by_hand() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(make_table(1000, make_costs(2.0, 10.0), 77))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (row,) = (line.split() for line in lines if line.startswith("logit_cells"))
    assert row == ["logit_cells", "2.0", "500", "1.00", "5.00", "0.00", "0.00", "0.0"]
    assert "1,000 rows, 969 field values, 77 logit cells" in lines[0]


def test_cost_of_a_stage_is_of_that_stage(spark: SparkSession, tmp_path: Path) -> None:
    with measure_stage(spark) as written:
        spark.range(0, 50_000, 1, 2).write.parquet(str(tmp_path / "rows"))
    with measure_stage(spark) as read:
        counted = spark.read.parquet(str(tmp_path / "rows")).groupBy((F.col("id") % 7).alias("key")).agg(F.sum("id"))
        assert len(counted.collect()) == 7
    with measure_stage(spark) as nothing:
        pass
    size = sum(file.stat().st_size for file in (tmp_path / "rows").glob("*.parquet"))
    # Spark's figure leaves out the footers
    assert 0.8 * size < written.written <= size and written.shuffled == 0
    assert read.read > 0.8 * size and read.written == 0 and read.shuffled > 0 and read.to_driver > 0
    assert (nothing.read, nothing.written, nothing.shuffled, nothing.to_driver) == (0, 0, 0, 0)
    assert written.peak_memory > 10**8 and written.seconds > 0


def test_a_failed_stage_says_why_and_ends_its_watcher(spark: SparkSession) -> None:
    with pytest.raises(RuntimeError, match="as it came"), measure_stage(spark) as cost:
        raise RuntimeError("as it came")
    assert cost.seconds > 0


def test_rows_stand_in_for_samples(spark: SparkSession) -> None:
    rows = make_scored_rows(spark, 500, 20)
    samples = _as_samples(rows)
    wanted = [name for name in schemas.calibrated_samples(["f"]).fieldNames() if not name.startswith("calibrated_")]
    assert set(wanted) <= set(samples.columns)
    ids = [
        [row.sample_id for row in _as_samples(part).sort("sample_id").collect()] for part in (rows, rows.coalesce(1))
    ]
    assert ids[0] == ids[1]
