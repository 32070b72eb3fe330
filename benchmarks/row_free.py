"""Training without rows: the calibrator without auxiliary network trains on logit cells, whatever the number of rows.

    python benchmarks/row_free.py --rows 2000000 20000000 --json row_free.json
    python benchmarks/row_free.py --lean-rows 2000000 20000000 200000000 --json row_free_lean.json

For each size of --rows: a generated world, its tables by the usual stages, then robust mode and paper mode without
auxiliary network, on cells, by one rank. At the sizes up to --rows-up-to paper mode is trained on the samples
themselves too, as it would be without cells, for several seeds, which vary split and initialisation, and on the same
samples once more with another initialisation. For each size of --lean-rows: cells and bins of a table of bare scored
rows (`scored_rows`), which takes seconds where the stages take minutes, and the same two fits, whose seconds alone are
told. It prints cells, fit seconds (trainer's start to saved calibrator) and test metrics, and ends with exit code 1
where a bar fails:

* paper mode's LogLoss and Field-RCE, cells less rows on the same split and initialisation, are on average over the
  seeds no farther from 0 than twice the standard deviation of an initialisation on one split, pooled over the seeds;
* the fit at the largest size takes at most 1.8 times that at the smallest, of either kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lean_run import configure, write_bins, write_cells, write_samples_manifest
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from scored_rows import keep_scored_rows

from adacalib import io, schemas
from adacalib.config import RunConfig, parse_config, read_config
from adacalib.manifest import read_origin
from adacalib.stats.training_rows import build_training_rows
from jobs import generate
from jobs.pipeline import SessionOnDemand, run_stages

TABLE_STAGES = ("prepare_samples", "score_samples", "build_logit_cells", "compute_bin_statistics")
FIT_STAGES = ("train_calibrator", "calibrate_samples", "evaluate")
METRICS = {"field_rce": 4, "log_loss": 5, "field_auc": 4}
FLOORS = ("field_rce_noise_floor", "field_rce_attainable")
LABELS = {
    "robust_cells": "robust mode, cells",
    "paper_cells": "paper mode, cells",
    "paper_rows": "paper mode, rows",
    "paper_rows_again": "paper mode, again",
}
ON_CELLS = ("robust_cells", "paper_cells")
OTHER_INITIALISATION = 1000
"""Added to a seed for the training of paper_rows_again; no other seed of the benchmark."""
LEAN_FIELD_VALUES = 969
MAX_GROWTH = 1.8
MAX_DEVIATIONS = 2.0

Results = dict[str, list[dict[str, float]]]
"""Method → its figures per seed: METRICS, FLOORS and fit_seconds."""


@dataclass(frozen=True)
class Bar:
    """One requirement: what was measured, and whether it holds."""

    text: str
    measured: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit


def judge(sizes: dict[int, Results]) -> list[Bar]:
    """The bars, from the figures of each number of rows.

    Differences are paired: cells less rows of the same seed, at least two seeds of one size. What the seeds' splits
    differ by is in both and cancels out. The yardstick is the standard deviation of an initialisation on one split:
    half the squared difference of two trainings on the same rows estimates its square, and is averaged over the seeds.
    """
    bars = []
    for rows, results in sizes.items():
        if len(results.get("paper_rows", [])) < 2:
            continue
        for metric in ("log_loss", "field_rce"):
            on_cells, on_rows, again = (
                np.array([one[metric] for one in results[name]])
                for name in ("paper_cells", "paper_rows", "paper_rows_again")
            )
            deviation = float(np.sqrt(np.mean((on_rows - again) ** 2 / 2)))
            distance = abs(float(np.mean(on_cells - on_rows)))
            text = f"{rows:,} rows: {metric} of paper mode, cells less rows, ± of an initialisation {deviation:.2g}"
            bars.append(Bar(text, distance, MAX_DEVIATIONS * deviation))
    return [*bars, *judge_growth(sizes)]


def judge_growth(sizes: dict[int, Results]) -> list[Bar]:
    """The bars on fit seconds: medians at the largest size over those at the smallest; none where there is one size."""
    smallest, largest = min(sizes, default=0), max(sizes, default=0)
    bars = []
    for method in ON_CELLS if smallest < largest else ():
        seconds = [_median_seconds(sizes[size][method]) for size in (smallest, largest)]
        text = f"{LABELS[method]}: fit seconds at {largest:,} rows / at {smallest:,}"
        bars.append(Bar(text, seconds[1] / seconds[0], MAX_GROWTH))
    return bars


def make_table(sizes: dict[int, Results], facts: dict[int, dict[str, float]]) -> Table:
    """A row per size and method: means over the seeds, median of the seconds; noise floors below."""
    floors = []
    for rows, results in sizes.items():
        levels = " / ".join(f"{_mean(results['robust_cells'], name):.4f}" for name in FLOORS)
        floors.append(f"{rows:,} rows {levels}")
    caption = f"noise floor / attainable Field-RCE: {'; '.join(floors)}"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for heading in (
        "rows",
        "cells",
        "tables\nseconds",
        "method",
        "fit\nseconds",
        "Field-\nRCE",
        "LogLoss",
        "Field-\nAUC",
    ):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for rows, results in sizes.items():
        head = [f"{rows:,}", f"{facts[rows]['cells']:,}", f"{facts[rows]['table_seconds']:.0f}"]
        for method, figures in results.items():
            seconds = _median_seconds(figures)
            means = [f"{_mean(figures, metric):.{digits}f}" for metric, digits in METRICS.items()]
            table.add_row(*head, LABELS[method], f"{seconds:.1f}", *means)
            head = ["", "", ""]
    return table


def make_lean_table(sizes: dict[int, Results], facts: dict[int, dict[str, float]]) -> Table:
    """A row per size: cells, seconds of its cells and bins, and of either fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("lean rows", "cells", "tables\nseconds", *(f"{LABELS[name]}\nfit seconds" for name in ON_CELLS)):
        table.add_column(heading, justify="right", no_wrap=True)
    for rows, results in sizes.items():
        seconds = [f"{_median_seconds(results[name]):.1f}" for name in ON_CELLS]
        table.add_row(f"{rows:,}", f"{facts[rows]['cells']:,}", f"{facts[rows]['table_seconds']:.0f}", *seconds)
    return table


def _median_seconds(figures: list[dict[str, float]]) -> float:
    return float(np.median([one["fit_seconds"] for one in figures]))


def _mean(figures: list[dict[str, float]], metric: str) -> float:
    return float(np.mean([one[metric] for one in figures]))


def run_seed(
    base: RunConfig, has_rows: bool, session: SessionOnDemand, console: Console
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """All methods on one size's tables of one seed: figures of each; number of cells and seconds of the tables."""
    run_stages(base, TABLE_STAGES, Console(quiet=True), session)
    stages = io.read_json(base.run_dir / "status.json")["stages"]
    cells = io.read_table(session.start(), base, "logit_cells", schemas.LOGIT_CELLS)
    facts = {
        "cells": cells.filter(F.col("field") == base.field).select("field_value_id", "cell").distinct().count(),
        "table_seconds": sum(stages[stage]["seconds"] for stage in TABLE_STAGES),
    }
    results = {}
    for method in LABELS if has_rows else ON_CELLS:
        console.print(f"  {LABELS[method]}", highlight=False)
        results[method] = _fit(base, method, session)
    return results, facts


def fit_lean(base: RunConfig, rows: int, repeat: int, session: SessionOnDemand) -> tuple[Results, dict[str, float]]:
    """Either fit on cells of bare scored rows, in turn: seconds of each; number of cells and seconds of the tables."""
    spark = session.start()
    started = time.monotonic()
    write_samples_manifest(base, rows, LEAN_FIELD_VALUES)
    n_cells = write_cells(spark.read.parquet(base.input.path), base, rows, LEAN_FIELD_VALUES)
    write_bins(spark, base, rows, LEAN_FIELD_VALUES)
    seconds = time.monotonic() - started
    results: Results = {method: [] for method in ON_CELLS}
    for _ in range(repeat):
        for method, figures in results.items():
            config = _configure_fit(base, method)
            run_stages(config, (*_row_stages(config), "train_calibrator"), Console(quiet=True), session)
            figures.append({"fit_seconds": _read_fit_seconds(config)})
    return results, {"cells": n_cells, "table_seconds": seconds}


def _fit(base: RunConfig, method: str, session: SessionOnDemand) -> dict[str, float]:
    config = _configure_fit(base, method)
    if method in ON_CELLS:
        stages = (*_row_stages(config), *FIT_STAGES)
    else:
        stages = FIT_STAGES
        _write_rows(config, session)
    run_stages(config, stages, Console(quiet=True), session)
    found = io.read_json(config.run_dir / "metrics.json")["methods"]["adacalib"]
    return {metric: found[metric] for metric in (*METRICS, *FLOORS)} | {"fit_seconds": _read_fit_seconds(config)}


def _row_stages(config: RunConfig) -> tuple[str, ...]:
    """The stage that makes training rows of the cells, where the mode streams any."""
    return ("build_training_rows",) if config.streams_rows else ()


def _read_fit_seconds(config: RunConfig) -> float:
    return float(io.read_json(config.run_dir / "unified" / "training.json")["seconds"])


def _configure_fit(base: RunConfig, method: str) -> RunConfig:
    content = base.model_dump(mode="json")
    if method == "paper_rows_again":
        content["calibrator"]["seed"] = base.seed + OTHER_INITIALISATION
    content["calibrator"]["mode"] = method.split("_")[0]
    content["bins"]["n_bins_candidates"] = None
    own = {"name": method, "runs_dir": str(base.run_dir), "inputs_from": str(base.run_dir)}
    return parse_config(content | own)


def _write_rows(config: RunConfig, session: SessionOnDemand) -> None:
    """Training rows of the samples, which a run without auxiliary network has no use for."""
    scored = io.read_table(session.start(), config, "scored_samples", schemas.scored_samples(config.fields))
    rows = build_training_rows(scored, config.field, seed=config.seed, hold_out_share=0.0, n_files=4)
    facts = read_origin(config, ("scored_samples",)) | {"fit_on": "train_and_dev", "made_from": "scored_samples"}
    io.write_table(rows, config, "training_rows", schemas.TRAINING_ROWS, partition_by="hold_out", facts=facts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    console = Console()
    sizes: dict[int, Results] = {}
    facts: dict[int, dict[str, float]] = {}
    lean_sizes: dict[int, Results] = {}
    lean_facts: dict[int, dict[str, float]] = {}
    with ExitStack() as cleanup:
        session = SessionOnDemand(_configure(options, 0, 0), cleanup)
        for rows in sorted(options.lean_rows):
            console.print(f"{rows:,} lean rows", highlight=False)
            path = keep_scored_rows(session.start(), options.runs_dir / "scored_rows", rows, LEAN_FIELD_VALUES)
            base = configure(options.runs_dir / "row_free", f"lean-{rows}", path)
            lean_sizes[rows], lean_facts[rows] = fit_lean(base, rows, options.repeat, session)
        for rows in sorted(options.rows):
            has_rows = rows <= options.rows_up_to
            for place in range(options.seeds if has_rows else 1):
                base = _configure(options, rows, place)
                console.print(f"{rows:,} rows, seed {base.seed}", highlight=False)
                if not Path(base.input.path, generate.FACTS).is_file():
                    generate.run(session.start(), options.world, rows, 1, base.input.path)
                figures, facts[rows] = run_seed(base, has_rows, session, console)
                for method, found in figures.items():
                    sizes.setdefault(rows, {}).setdefault(method, []).append(found)
    if sizes:
        console.print(make_table(sizes, facts))
    if lean_sizes:
        console.print(make_lean_table(lean_sizes, lean_facts))
    bars = [*judge(sizes), *judge_growth(lean_sizes)]
    for bar in bars:
        word = "[green]holds[/green]" if bar.holds else "[red]fails[/red]"
        console.print(f"{word}  {bar.text}: {bar.measured:.3g} (bar {bar.limit:.3g})", highlight=False)
    document = {
        "world": options.world,
        "sizes": {str(rows): {"facts": facts[rows], "methods": sizes[rows]} for rows in sizes},
        "lean_sizes": {str(rows): {"facts": lean_facts[rows], "methods": lean_sizes[rows]} for rows in lean_sizes},
        "bars": [asdict(bar) | {"holds": bar.holds} for bar in bars],
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(bar.holds for bar in bars) else 1


def _configure(options: argparse.Namespace, rows: int, place: int) -> RunConfig:
    content: dict[str, Any] = read_config(Path("configs") / f"{options.world}.yaml").model_dump(mode="json")
    content["input"]["path"] = str(options.runs_dir / "worlds" / f"{options.world}-{rows}-1")
    content["calibrator"] = {"auxiliary": {"enabled": False}}
    content["training"]["ranks"] = 1
    content["bins"]["n_bins_candidates"] = [5, 10, 20]  # of both modes
    own = {"name": f"seed_{content['seed'] + place}", "seed": content["seed"] + place}
    return parse_config(content | own | {"runs_dir": str(options.runs_dir / "row_free" / f"{options.world}-{rows}")})


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[], help="sizes of the generated table")
    parser.add_argument(
        "--lean-rows", type=int, nargs="+", default=[], help="sizes of a table of bare scored rows, from 200,000"
    )
    parser.add_argument("--world", default="cvr_like", help="the kind of table: configs/WORLD.yaml")
    parser.add_argument("--seeds", type=int, default=3, help="seeds at the sizes that rows are trained on; 1 elsewhere")
    parser.add_argument("--repeat", type=int, default=3, help="fits of each kind at each lean size")
    parser.add_argument("--rows-up-to", type=int, default=2_000_000, help="largest size to train on rows too")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    options = parser.parse_args(arguments)
    if not options.rows and not options.lean_rows:
        parser.error("no sizes: give --rows, --lean-rows or both")
    return options


if __name__ == "__main__":
    sys.exit(main())
