"""Training with the auxiliary network: rows per second from disk and from memory, by ranks, and a rank's peak memory.

    python benchmarks/train.py --config configs/flights3m.yaml --ranks 1 2 --json train.json

It runs the stages of the configuration up to training_rows where runs/NAME has not got them yet. Then
`jobs.train_calibrator` trains the calibrator on every number of ranks, in turn from disk as always and from batches
that were read before and are kept in memory. Of each training the first epoch is left out. With --times, one epoch
over so many copies of the rows, from disk: a rank's peak memory is not to grow with them.

The exit code is 1 where a bar fails: rows per second from disk are at least .8 of those from memory, less than 10 % of
the time is spent waiting for data, peak memory grows by at most a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from kept_run import keep_training_rows
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from adacalib import io
from adacalib.config import RunConfig, read_config
from adacalib.model import calibrator_training, training
from adacalib.model.row_files import RowFiles, repeat_rows
from adacalib.model.stream import Batch
from jobs import train_calibrator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("disk", "memory")
MIN_SPEED = 0.8
MAX_WAITING = 0.1
MAX_MEMORY_GROWTH = 1.1
PROFILED_ROWS = 30

Figures = dict[str, Any]
"""Of one training: its "epochs", their "rows_per_second" and "waiting_share", the largest rank's "peak_memory"."""


def judge(
    turns: dict[int, dict[str, list[Figures]]], memory: dict[int, Figures]
) -> list[tuple[str, float, float, bool]]:
    """The bars: text, measured, limit, whether it holds.

    Args:
        turns: number of ranks → source → figures of each turn.
        memory: copies of the rows → figures of an epoch over them.
    """
    bars = []
    for ranks, by_source in turns.items():
        speed = median(
            _speed(disk) / _speed(kept) for disk, kept in zip(by_source["disk"], by_source["memory"], strict=True)
        )
        bars.append((f"{ranks} ranks: rows/s from disk / from memory", speed, MIN_SPEED, speed >= MIN_SPEED))
        waiting = median(share for turn in by_source["disk"] for share in turn["waiting_share"])
        bars.append((f"{ranks} ranks: share of time waiting for data", waiting, MAX_WAITING, waiting < MAX_WAITING))
    if len(memory) > 1:
        least, most = min(memory), max(memory)
        growth = memory[most]["peak_memory"] / memory[least]["peak_memory"]
        text = f"peak memory of a rank, rows × {most} / × {least}"
        bars.append((text, growth, MAX_MEMORY_GROWTH, growth <= MAX_MEMORY_GROWTH))
    return bars


def _speed(figures: Figures) -> float:
    return float(median(figures["rows_per_second"]))


def make_table(turns: dict[int, dict[str, list[Figures]]]) -> Table:
    """A row per number of ranks and source: medians over turns and epochs."""
    table = Table(box=None, pad_edge=False)
    for heading in ("ranks", "rows from", "rows/s", "waiting", "peak memory\nof a rank, GB"):
        table.add_column(heading, justify="left" if heading == "rows from" else "right")
    for ranks, by_source in turns.items():
        for source, figures in by_source.items():
            speed = median(_speed(turn) for turn in figures)
            waiting = median(share for turn in figures for share in turn["waiting_share"])
            peak = max(turn["peak_memory"] for turn in figures) / 1e9
            table.add_row(f"{ranks}", source, f"{speed:,.0f}", f"{waiting:.1%}", f"{peak:.2f}")
    return table


def train_on_ranks(config: RunConfig, ranks: int, source: str, times: int, profile_path: Path | None) -> Figures:
    """One training by the product's own job on that many ranks, and what its ranks left of it."""
    out = config.run_dir / "benchmark_train"
    out.mkdir(parents=True, exist_ok=True)
    config_path = out / "config.json"
    io.write_json(config_path, config.model_dump(mode="json"))
    command = [sys.executable, "-m", "adacalib.launch", "--standalone", "--nproc-per-node", str(ranks)]
    command += [__file__, "--config", str(config_path), "--json", str(out), "--rank", source, "--times", str(times)]
    command += ["--profile", str(profile_path)] if profile_path is not None else []
    threads = str(config.training.threads_per_rank)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    curve = io.read_json(config.run_dir / "unified" / "training.json")["loss_curves"]["auxiliary"]
    epochs = [epoch for epoch in curve if epoch["epoch"] > 0]
    epochs = epochs[1:] or epochs
    return {
        "epochs": epochs,
        "rows_per_second": [epoch["rows"] / epoch["seconds"] for epoch in epochs],
        "waiting_share": [epoch["waiting_share"] for epoch in epochs],
        "peak_memory": max(io.read_json(out / f"rank_{rank}.json")["peak_memory"] for rank in range(ranks)),
    }


def run_rank(options: argparse.Namespace) -> None:
    """What every rank runs: the job, with its batches read before where they are to come from memory."""
    rank = os.environ["RANK"]
    with ExitStack() as stack:
        if options.rank == "memory":
            stack.enter_context(mock.patch.object(training, "stream_plan", _keep(training.stream_plan)))
        if options.times != [1]:
            open_rows = _repeat(calibrator_training.open_rows, options.times[0])
            stack.enter_context(mock.patch.object(calibrator_training, "open_rows", open_rows))
        if options.profile is not None and rank == "0":
            profiler = stack.enter_context(profile(activities=[ProfilerActivity.CPU]))
        train_calibrator.main(["--config", options.config])
    if options.profile is not None and rank == "0":
        table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=PROFILED_ROWS)
        options.profile.write_text(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    io.write_json(options.json / f"rank_{rank}.json", {"peak_memory": peak})


def _keep(stream_plan: Callable[..., Iterator[Batch]]) -> Callable[..., Iterator[Batch]]:
    """The batches of the first epoch, kept, for all epochs."""
    kept: list[Batch] = []

    def stream_kept(*arguments: Any, **named: Any) -> Iterator[Batch]:
        if not kept:
            kept.extend(stream_plan(*arguments, **named))
        return iter(kept)

    return stream_kept


def _repeat(open_rows: Callable[..., RowFiles], times: int) -> Callable[..., RowFiles]:
    return lambda *arguments: repeat_rows(open_rows(*arguments), times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    if options.rank is not None:
        run_rank(options)
        return 0
    console = Console()
    changes = [f"calibrator.auxiliary.epochs={options.epochs}", f"calibrator.auxiliary.patience={options.epochs}"]
    config = read_config(options.config, [*options.changes, *changes])
    keep_training_rows(config, console)
    turns: dict[int, dict[str, list[Figures]]] = {n: {source: [] for source in SOURCES} for n in options.ranks}
    for turn in range(options.repeat):
        for ranks, by_source in turns.items():
            for source, figures in by_source.items():
                figures.append(train_on_ranks(config, ranks, source, 1, None))
                text = f"turn {turn + 1}, {ranks} ranks, from {source}: {_speed(figures[-1]):,.0f} rows/s"
                console.print(text, highlight=False)
    one_epoch = read_config(options.config, [*options.changes, "calibrator.auxiliary.epochs=1"])
    memory = {times: train_on_ranks(one_epoch, options.ranks[-1], "disk", times, None) for times in options.times}
    console.print(make_table(turns))
    for times, figures in memory.items():
        console.print(f"rows × {times}: peak memory of a rank {figures['peak_memory'] / 1e9:.3f} GB", highlight=False)
    bars = judge(turns, memory)
    for text, measured, limit, holds in bars:
        word = "[green]holds[/green]" if holds else "[red]fails[/red]"
        console.print(f"{word}  {text}: {measured:.3g} (bar {limit:.3g})", highlight=False)
    if options.profile is not None:
        train_on_ranks(one_epoch, options.ranks[0], "memory", 1, options.profile.resolve())
    document = {"torch": torch.__version__, "turns": turns, "memory": memory}
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(holds for *_, holds in bars) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=3, help="per training; the first is left out")
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    parser.add_argument("--times", type=int, nargs="+", default=[1], help="copies of the rows for peak memory")
    parser.add_argument("--profile", type=Path, help="file for the operations of an epoch from memory, dearest first")
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    parser.add_argument("--rank", choices=SOURCES, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
