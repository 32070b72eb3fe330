"""Runs stages of one run one after the other, with one Spark session for all of them.

Reads what the first stage reads; writes, beside the stages' own outputs in runs/NAME: effective_config.json (the
configuration in force, which launched ranks read), status.json (after every stage), error.log (a failure's trace).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from adacalib.config import STAGES, ConfigError, RunConfig
from adacalib.io import start_session, table_path, write_json
from adacalib.manifest import MANIFEST, read_origin
from adacalib.status import begin_status, describe_error, now, read_input_fingerprint
from adacalib.terminal import make_metrics_tables

RANK_STAGES = ("train_predictor", "train_calibrator")
"""Stages that run as ranks of their own, started by launch; the others run in this process."""


class StageFailed(RuntimeError):
    """A stage ended the run; the message is the error's own, its cause carries the trace."""


def select_stages(config: RunConfig, first: str | None = None, last: str | None = None) -> tuple[str, ...]:
    """The stages of this run from first to last, both included; from the beginning, to the end when None.

    A first or last stage that this configuration skips (train_predictor with own scores) is no fault: the range is
    cut from all stages, and what the run skips drops out.

    Raises:
        ConfigError: an unknown stage (the message has the nearest), first after last, or nothing left to run.
    """
    for stage in (first, last):
        if stage is not None and stage not in STAGES:
            near = difflib.get_close_matches(stage.replace("-", "_"), STAGES, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"stages: {', '.join(STAGES)}"
            raise ConfigError(f"unknown stage {stage!r} ({hint})")
    start = STAGES.index(first) if first else 0
    stop = STAGES.index(last) + 1 if last else len(STAGES)
    if start >= stop:
        raise ConfigError(f"--from {first} comes after --until {last}; stages in order: {', '.join(STAGES)}")
    selected = tuple(stage for stage in STAGES[start:stop] if stage in config.stages)
    if not selected:
        skipped = " and ".join(STAGES[start:stop])
        raise ConfigError(f"nothing to run: this run skips {skipped}; its stages: {', '.join(config.stages)}")
    return selected


def run_stages(
    config: RunConfig, stages: tuple[str, ...], console: Console, session: SessionOnDemand | None = None
) -> None:
    """Runs the stages in the order given and prints one line for each, at the end the metrics where they are new.

    Args:
        session: the Spark session to use, which stays open; by default one is started on demand and stopped at the end.

    Raises:
        StageFailed: a stage raised; status.json says failed, error.log in the run's folder has the trace.
        KeyboardInterrupt: as it came; status.json says failed.
    """
    if stages[0] != "prepare_samples" and (table_path(config, "samples") / MANIFEST).is_file():
        read_origin(config, ("samples",))  # what is recorded below shall be what made the tables
    config.run_dir.mkdir(parents=True, exist_ok=True)
    config_path = config.run_dir / "effective_config.json"
    write_json(config_path, config.model_dump(mode="json"))
    (config.run_dir / "error.log").unlink(missing_ok=True)
    status = begin_status(config, stages)
    started = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        session = session or SessionOnDemand(config, cleanup)
        for position, stage in enumerate(stages, start=1):
            with _recorded(config, status, stage, started):
                _run_stage(stage, config, config_path, session)
            seconds = status["stages"][stage]["seconds"]
            console.print(f"[bold]{position}/{len(stages)}[/bold] {stage} [dim]{seconds:.1f} s[/dim]", highlight=False)
    _save(config, status | {"state": "succeeded", "stage": None, "ended": now()}, started)
    _print_results(config, stages, console)


_interrupted = threading.Event()


def _note_interrupts() -> None:
    """Remembers that SIGINT or SIGTERM came; then does what Spark's own handler does."""

    def note(number: int, frame: Any) -> None:
        _interrupted.set()
        logging.disable(logging.CRITICAL)  # py4j logs each call that the interrupt cuts off
        if callable(handlers[number]):
            handlers[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        _interrupted.clear()
        handlers: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        for number in handlers:
            signal.signal(number, note)


class SessionOnDemand:
    """The one Spark session of a run, started when the first stage asks for it."""

    def __init__(self, config: RunConfig, cleanup: contextlib.ExitStack) -> None:
        self._config = config
        self._cleanup = cleanup
        self.current: SparkSession | None = None

    def start(self) -> SparkSession:
        if self.current is None:
            self.current = start_session(self._config.spark, self._config.name)
            _note_interrupts()
            self._cleanup.callback(self.current.stop)
        return self.current


def _run_stage(stage: str, config: RunConfig, config_path: Path, session: SessionOnDemand) -> None:
    if stage in RANK_STAGES:
        from adacalib.launch import launch  # here, not above: the other stages need no torch

        needs_spark = config.training.launcher == "torch_distributor"
        launch(
            module=f"jobs.{stage}",
            config_path=config_path,
            ranks=config.training.ranks,
            launcher=config.training.launcher,
            spark=session.start() if needs_spark else session.current,
        )
        return
    # Looked up when its turn comes: the report's matplotlib and a stage's pyspark load only where they are used.
    run: Callable[..., Any] = importlib.import_module(f"jobs.{stage}").run
    if stage == "report":
        run(config)
    else:
        run(session.start(), config)


@contextlib.contextmanager
def _recorded(config: RunConfig, status: dict[str, Any], stage: str, started: float) -> Iterator[None]:
    """Keeps status.json in step with a stage, and turns its failure into StageFailed."""
    entry: dict[str, Any] = {"state": "running", "started": now(), "ended": None, "seconds": None}
    status["stage"], status["stages"][stage] = stage, entry
    _save(config, status, started)
    clock = time.monotonic()
    try:
        yield
    except (Exception, KeyboardInterrupt) as caught:
        # an interrupt cancels Spark's job, and what comes back from there first is the job's error
        error = KeyboardInterrupt("interrupted") if _interrupted.is_set() else caught
        status["input_fingerprint"] = read_input_fingerprint(config)
        entry |= {"state": "failed", "ended": now(), "seconds": round(time.monotonic() - clock, 3)}
        _save(config, status | {"state": "failed", "error": describe_error(error), "ended": now()}, started)
        (config.run_dir / "error.log").write_text("".join(traceback.format_exception(caught)))
        if isinstance(error, KeyboardInterrupt):
            raise error from None
        raise StageFailed(f"{stage} failed: {describe_error(error)}") from error
    entry |= {"state": "succeeded", "ended": now(), "seconds": round(time.monotonic() - clock, 3)}
    status["input_fingerprint"] = read_input_fingerprint(config)
    _save(config, status, started)


def _save(config: RunConfig, status: dict[str, Any], started: float) -> None:
    write_json(config.run_dir / "status.json", status | {"seconds": round(time.monotonic() - started, 3)})


def _print_results(config: RunConfig, stages: tuple[str, ...], console: Console) -> None:
    if "evaluate" in stages:
        metrics = json.loads((config.run_dir / "metrics.json").read_text())
        for table in make_metrics_tables(metrics):
            console.print(table)
    if "report" in stages:
        console.print(f"report: {config.run_dir / 'report.html'}", highlight=False, soft_wrap=True)
