"""Bounds and posteriors per field value: logit cells against percentile_approx, a plain scan and DuckDB.

    python benchmarks/bin_statistics.py --rows 100000000 --field-values 969 --json bin_statistics.json

On one generated table of scored samples (kept under --runs-dir) it times, each --repeat times in turn:

* scan: Spark sums field value id, logit and label;
* logit_cells: Spark adds the rows up to logit cells, written as Parquet;
* logit_cell_method: the same, and from the cells bounds and posteriors for three candidate numbers of bins;
* approx_quantile: bounds by percentile_approx, posteriors by a second pass over the rows, the same candidates;
* duckdb: DuckDB computes the same cells from the same files with two threads.

Printed are medians, and medians of the ratios within a turn, each with its bar; the exit code is 1 where one fails. The
cells of DuckDB must be those of Spark, or it ends with an error: a fast wrong answer is not one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from scored_rows import keep_scored_rows, make_field_values
from turns import Bar, make_parser, report, time_in_turns

from adacalib import io
from adacalib.config import SparkConfig
from adacalib.stats.bin_statistics import approximate_bin_statistics, compute_bin_statistics
from adacalib.stats.logit_cells import build_logit_cells

CANDIDATES = (5, 10, 20)
ACCURACY = 1000
BARS = (
    Bar("cells_over_approx_quantile", "logit_cell_method", "approx_quantile", 0.2),
    Bar("cells_over_scan", "logit_cells", "scan", 3.5),
    Bar("cells_over_duckdb", "logit_cells", "duckdb", 2.5),
)

DUCKDB_CELLS = """
COPY (
    SELECT field_value_id_f, floor(uncalibrated_logit * 32)::INT AS cell, count(*) AS n_samples,
           sum(label)::BIGINT AS n_responses, sum(uncalibrated_logit::DOUBLE) AS sum_logit
    FROM read_parquet('{files}') GROUP BY ALL
) TO '{out}' (FORMAT parquet)
"""


class DifferentCells(RuntimeError):
    """DuckDB and Spark disagree."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    console = Console()
    with ExitStack() as cleanup:
        spark = io.start_session(SparkConfig(master="local[2]"), "benchmark of bin statistics")
        cleanup.callback(spark.stop)
        rows = keep_scored_rows(
            spark,
            options.runs_dir / "scored_rows",
            options.rows,
            options.field_values,
            head_share=options.head_share,
            files=options.files,
        )
        seconds = time_in_turns(_list_steps(spark, rows, options), options.repeat, console)
        facts = {"rows": options.rows, "field_values": options.field_values, **_compare_cells(spark, options)}
    title = f"{options.rows:,} rows, {options.field_values:,} field values, {facts['cells']:,} cells"
    return report(title, facts, seconds, BARS, console, options.json)


def _list_steps(spark: SparkSession, path: Path, options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    rows = spark.read.parquet(str(path))
    values = make_field_values(spark, options.field_values)
    cells_path, duckdb_path = _outputs(options)

    def write_cells() -> None:
        cells = build_logit_cells(rows, values, "f", has_weights=False)
        cells.write.mode("overwrite").parquet(str(cells_path))

    def write_bins(bins: DataFrame) -> None:
        bins.write.format("noop").mode("overwrite").save()

    def run_method() -> None:
        write_cells()
        write_bins(compute_bin_statistics(spark.read.parquet(str(cells_path)), values, "f", CANDIDATES))

    steps: dict[str, Callable[[], Any]] = {
        "scan": lambda: rows.agg(F.sum("field_value_id_f"), F.sum("uncalibrated_logit"), F.sum("label")).collect(),
        "logit_cells": write_cells,
        "logit_cell_method": run_method,
        "approx_quantile": lambda: write_bins(approximate_bin_statistics(rows, values, "f", CANDIDATES, ACCURACY)),
        "duckdb": lambda: _run_duckdb(path, duckdb_path),
    }
    return {name: run for name, run in steps.items() if name not in options.without}


def _outputs(options: argparse.Namespace) -> tuple[Path, Path]:
    folder: Path = options.runs_dir / "bin_statistics"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "cells", folder / "duckdb.parquet"


def _run_duckdb(path: Path, out: Path) -> None:
    import duckdb

    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(DUCKDB_CELLS.format(files=f"{path}/*.parquet", out=out))


def _compare_cells(spark: SparkSession, options: argparse.Namespace) -> dict[str, int]:
    """Number of cells; checks that DuckDB's have the same counts and responses."""
    cells_path, duckdb_path = _outputs(options)
    cells = spark.read.parquet(str(cells_path))
    n_cells = cells.count()
    if "duckdb" not in options.without:
        keys = ["field_value_id", "cell", "n_samples", "n_responses"]
        other = spark.read.parquet(str(duckdb_path)).withColumnRenamed("field_value_id_f", "field_value_id")
        differing = cells.select(keys).exceptAll(other.select(keys)).count() + abs(other.count() - n_cells)
        if differing:
            raise DifferentCells(f"{differing:,} of {n_cells:,} cells differ between Spark and DuckDB")
    return {"cells": n_cells}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--head-share", type=float, default=0.0, help="share of the rows of one value besides its own")
    parser.add_argument("--files", type=int, default=None, help="input files; by default one per 12.5 million rows")
    parser.add_argument("--without", action="append", default=[], help="a step to leave out; may be repeated")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
