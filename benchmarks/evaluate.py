"""Evaluation: every metric of two methods on one field, against a scan that adds up the same columns by field value.

    python benchmarks/evaluate.py --rows 20000000 --json evaluate.json

On one generated table of calibrated samples (kept under --runs-dir) it times, each --repeat times in turn:

* scan: Spark sums label, weight and both score columns by field value;
* sums: the passes of `jobs/evaluate.py` over the rows: logit cells, sums by (field value, tercile, jackknife group),
  score cells by (field value, method);
* metrics: all metrics, noise floors, attainable levels, intervals and paired differences from those sums;
* evaluate: sums and metrics together.

The exit code is 1 where the bar fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from scored_rows import keep_scored_rows, keep_table, make_field_values
from turns import Bar, make_parser, report, time_in_turns

from adacalib import io
from adacalib.baselines.references import compute_reference_levels
from adacalib.cells.evaluation import EvaluationSums, describe_differences, describe_methods
from adacalib.cells.logit_cells import LogitCells
from adacalib.config import EvaluationConfig, SparkConfig
from adacalib.stats.evaluation_sums import collect_cells, score_column, summarise_test
from adacalib.stats.logit_cells import build_logit_cells

METHODS = ("uncalibrated", "adacalib")
SEED = 1
BARS = (
    Bar("evaluate_over_scan", "evaluate", "scan", 9.0),
    Bar("sums_over_scan", "sums", "scan"),
    Bar("metrics_over_scan", "metrics", "scan"),
)

Sums = tuple[LogitCells, EvaluationSums]


def add_scores(rows: DataFrame) -> DataFrame:
    """Scored rows with what evaluation reads besides: an id, and each method's probability (the second one calibrates).

    Each is a function of the row, so that rows that are equal have one id.
    """
    logit, value = F.col("uncalibrated_logit").cast("double"), F.col("field_value_id_f")
    own = F.xxhash64("field_value_id_f", "uncalibrated_logit", "label")
    calibrated = logit - 0.5 + 0.8 * F.sin(value.cast("double"))  # scored_rows has the same
    scores = {"uncalibrated": logit, "adacalib": calibrated}
    return rows.withColumns(
        {"sample_id": F.concat(F.lower(F.hex(own)), F.lit("-1"))}
        | {score_column(method): 1 / (1 + F.exp(-score)) for method, score in scores.items()}
    )


def add_up(rows: DataFrame, field_values: int, settings: EvaluationConfig) -> Sums:
    """The passes of jobs/evaluate.py over rows with a score column per method."""
    values = make_field_values(rows.sparkSession, field_values)
    cells = collect_cells(build_logit_cells(rows, values, "f", has_weights=False), field_values + 1)
    evaluated = summarise_test(
        rows,
        METHODS,
        "f",
        cells,
        n_groups=settings.jackknife_groups,
        seed=SEED,
        cells_per_logit=settings.choose_score_cells(len(METHODS) * int(cells.n_samples.sum())),
        has_weights=False,
    )
    return cells, evaluated


def compute_all_metrics(found: Sums, settings: EvaluationConfig) -> dict[str, Any]:
    """What jobs/evaluate.py computes for one field; the test cells stand for those of the fit."""
    cells, evaluated = found
    levels = compute_reference_levels(cells, cells, settings.attainable_draws, SEED)
    differences = describe_differences(evaluated.grouped, "adacalib", "uncalibrated", settings.interval_level)
    return describe_methods(evaluated, levels, settings.interval_level) | {"differences": differences}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where the bar fails."""
    options = make_parser(__doc__).parse_args(arguments)
    console = Console()
    settings = EvaluationConfig()
    with ExitStack() as cleanup:
        spark = io.start_session(SparkConfig(master="local[2]"), "benchmark of evaluation")
        cleanup.callback(spark.stop)
        lean = spark.read.parquet(
            str(keep_scored_rows(spark, options.runs_dir / "scored_rows", options.rows, options.field_values))
        )
        path = options.runs_dir / "evaluated_rows" / f"{options.rows}-{options.field_values}"
        rows = spark.read.parquet(str(keep_table(path, lambda: add_scores(lean))))
        kept: list[Sums] = []
        metrics: dict[str, Any] = {}
        steps = _list_steps(rows, options.field_values, settings, kept, metrics)
        seconds = time_in_turns(steps, options.repeat, console)
    facts = {
        "rows": options.rows,
        "field_values": options.field_values,
        "cells": len(kept[-1][0]),
        "metrics": {method: metrics[method] for method in METHODS},
    }
    title = f"{options.rows:,} rows, {options.field_values:,} field values, 2 score columns"
    return report(title, facts, seconds, BARS, console, options.json)


def _list_steps(
    rows: DataFrame,
    field_values: int,
    settings: EvaluationConfig,
    kept: list[Sums],
    metrics: dict[str, Any],
) -> dict[str, Callable[[], Any]]:
    columns = ("label", "weight", *(score_column(method) for method in METHODS))

    return {
        "scan": lambda: rows.groupBy("field_value_id_f").agg(*(F.sum(name) for name in columns)).collect(),
        "sums": lambda: kept.append(add_up(rows, field_values, settings)),
        "metrics": lambda: compute_all_metrics(kept[-1], settings),
        "evaluate": lambda: metrics.update(compute_all_metrics(add_up(rows, field_values, settings), settings)),
    }


if __name__ == "__main__":
    sys.exit(main())
