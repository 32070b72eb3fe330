"""A run's training rows, made where they are not there yet: what the benchmarks of streaming and training read."""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console

from adacalib import io
from adacalib.config import RunConfig
from adacalib.manifest import MANIFEST
from jobs.pipeline import SessionOnDemand, run_stages, select_stages


def keep_training_rows(config: RunConfig, console: Console) -> None:
    """Runs the stages up to training_rows, unless runs/NAME has that table already."""
    if (io.table_path(config, "training_rows") / MANIFEST).is_file():
        return
    with ExitStack() as cleanup:
        run_stages(
            config, select_stages(config, None, "build_training_rows"), console, SessionOnDemand(config, cleanup)
        )
