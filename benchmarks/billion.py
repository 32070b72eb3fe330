"""All that a run without auxiliary network does to N rows, and what each stage of it costs.

    python benchmarks/billion.py --rows 10000000 100000000 1000000000 --json billion.json

For each size: a generated table of scored samples (969 field values, Zipf; 5 GB at a billion rows), then

* logit_cells and bin_statistics of all rows;
* train: the calibrator on these cells, by one rank, in a process of its own;
* score: every row calibrated and written, with the columns of calibrated_samples (40 GB at a billion rows);
* evaluate: every metric of the un-calibrated and the calibrated score, with floors and intervals, on all rows.

Printed are seconds, rows per second, peak memory, and bytes that Spark read, wrote, shuffled and sent to the driver.
What was made on the way stays under --runs-dir, the calibrated table excepted. The exit code is 1 where a bar fails:
cost per row of the logit cells at the largest size against the next smaller one, training at the largest against the
smallest, peak memory, and that no stage's results at the driver grow with the rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluate import add_up, compute_all_metrics
from lean_run import FIELD, configure, write_bins, write_cells, write_samples_manifest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from scored_rows import keep_scored_rows
from stage_costs import StageCost, measure_stage

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.model.calibrator import functions_of
from adacalib.model.unified import load_model
from adacalib.stats.calibrated_samples import calibrate_by_functions
from adacalib.stats.evaluation_sums import add_scores
from jobs.pipeline import SessionOnDemand, run_stages

FIELD_VALUES = 969
GB = 1e9
MAX_CELLS_GROWTH = 1.15
MAX_TRAIN_GROWTH = 1.8
MAX_MEMORY = 16 * GB
MAX_DRIVER_BYTES_PER_VALUE = 1_000_000
"""Results at the driver are bounded by field values × what is kept of one: terciles × groups × sums, score cells."""

Costs = dict[str, StageCost]
"""Stage → what it cost."""


def judge(sizes: Mapping[int, Costs]) -> list[tuple[str, float, float]]:
    """The bars: text, measured and limit; those on growth only where there are two sizes."""
    order = sorted(sizes)
    bars = []
    if len(order) > 1:
        per_row = [sizes[rows]["logit_cells"].seconds / rows for rows in order[-2:]]
        text = f"logit cells, seconds per row at {order[-1]:,} rows / at {order[-2]:,}"
        bars.append((text, per_row[1] / per_row[0], MAX_CELLS_GROWTH))
        seconds = [sizes[rows]["train"].seconds for rows in (order[0], order[-1])]
        bars.append(
            (f"train, seconds at {order[-1]:,} rows / at {order[0]:,}", seconds[1] / seconds[0], MAX_TRAIN_GROWTH)
        )
    costs = sizes[order[-1]].values()
    bars.append(("peak memory, GB", max(cost.peak_memory for cost in costs) / GB, MAX_MEMORY / GB))
    to_driver = max(cost.to_driver for cost in costs)
    limit = MAX_DRIVER_BYTES_PER_VALUE * FIELD_VALUES
    bars.append(("largest result at the driver, GB", to_driver / GB, limit / GB))
    return bars


def make_table(rows: int, costs: Costs, cells: int) -> Table:
    """A row per stage of one size."""
    table = Table(title=f"{rows:,} rows, {FIELD_VALUES:,} field values, {cells:,} logit cells", title_justify="left")
    table.box, table.pad_edge = None, False
    headings = ("", "seconds", "rows/s", "peak\nmemory GB", "read\nGB", "written\nGB", "shuffled\nGB", "to driver\nMB")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for stage, cost in costs.items():
        sizes = (cost.peak_memory, cost.read, cost.written, cost.shuffled)
        gigabytes = [f"{size / GB:.2f}" for size in sizes]
        table.add_row(
            stage, f"{cost.seconds:.1f}", f"{rows / cost.seconds:,.0f}", *gigabytes, f"{cost.to_driver / 1e6:.1f}"
        )
    return table


def run_size(rows: int, runs_dir: Path, session: SessionOnDemand, console: Console) -> tuple[Costs, dict[str, Any]]:
    """All stages on one size: what each cost, and the number of cells and the metrics that came out."""
    spark = session.start()
    costs: Costs = {}

    def measured(stage: str, run: Callable[[], Any]) -> Any:
        with measure_stage(spark) as cost:
            found = run()
        costs[stage] = cost
        console.print(f"  {stage}: {cost.seconds:.1f} s", highlight=False)
        return found

    path = measured("generate", lambda: keep_scored_rows(spark, runs_dir / "scored_rows", rows, FIELD_VALUES))
    config = configure(runs_dir / "billion", str(rows), path, has_network=False)
    scored = spark.read.parquet(str(path))
    write_samples_manifest(config, rows, FIELD_VALUES)
    cells = measured("logit_cells", lambda: write_cells(scored, config, rows, FIELD_VALUES))
    measured("bin_statistics", lambda: write_bins(spark, config, rows, FIELD_VALUES))
    measured("train", lambda: run_stages(config, ("train_calibrator",), Console(quiet=True), session))
    measured("score", lambda: _score(scored, config))
    metrics = measured("evaluate", lambda: _evaluate(spark, config))
    shutil.rmtree(io.table_path(config, "calibrated_samples"))
    return costs, {"cells": cells, "metrics": metrics}


def _score(scored: DataFrame, config: RunConfig) -> None:
    calibrator = load_model(config.run_dir / "unified", FIELD)[0].calibrator
    assert calibrator is not None  # train has just written it
    calibrated = calibrate_by_functions(_as_samples(scored), functions_of(calibrator), [FIELD])
    io.write_table(calibrated, config, "calibrated_samples", schemas.calibrated_samples([FIELD]))


def _as_samples(scored: DataFrame) -> DataFrame:
    """The rows with the other columns of scored samples; an id is a function of the row."""
    own = F.xxhash64("field_value_id_f", "uncalibrated_logit", "label")
    others: dict[str, Column] = {
        "sample_id": F.concat(F.lower(F.hex(own)), F.lit("-1")),
        "row_key": F.lit(None).cast("string"),
        "true_probability": F.lit(None).cast("double"),
        "parent_id": F.lit(0),
        "split": F.lit("test"),
    }
    return scored.withColumns(others)


def _evaluate(spark: SparkSession, config: RunConfig) -> dict[str, Any]:
    schema = schemas.calibrated_samples([FIELD])
    rows = add_scores(io.read_table(spark, config, "calibrated_samples", schema), FIELD, {})
    return compute_all_metrics(add_up(rows, FIELD_VALUES, config.evaluation), config.evaluation)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    console = Console()
    sizes: dict[int, Costs] = {}
    found: dict[int, dict[str, Any]] = {}
    with ExitStack() as cleanup:
        anywhere = configure(options.runs_dir / "billion", "session", options.runs_dir, has_network=False)
        session = SessionOnDemand(anywhere, cleanup)
        for rows in sorted(options.rows):
            console.print(f"{rows:,} rows", highlight=False)
            sizes[rows], found[rows] = run_size(rows, options.runs_dir, session, console)
    for rows, costs in sizes.items():
        console.print(make_table(rows, costs, found[rows]["cells"]))
    bars = judge(sizes)
    for text, measured, limit in bars:
        word = "[green]holds[/green]" if measured <= limit else "[red]fails[/red]"
        console.print(f"{word}  {text}: {measured:.3g} (bar {limit:.3g})", highlight=False)
    document = {
        "field_values": FIELD_VALUES,
        "sizes": {
            str(rows): {"stages": {stage: asdict(cost) for stage, cost in sizes[rows].items()}, **found[rows]}
            for rows in sizes
        },
        "bars": [{"text": text, "measured": measured, "limit": limit} for text, measured, limit in bars],
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(measured <= limit for _, measured, limit in bars) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", required=True, help="sizes, from 200,000")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
