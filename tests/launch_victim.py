"""Run on every rank by tests/test_launch.py; the configuration's note says how it goes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from adacalib.config import RunConfig, read_config
from adacalib.model.distributed import join_ranks, wait_for_all


def main(arguments: Sequence[str]) -> None:
    config = read_config(arguments[1])
    try:
        run(config)
    except ValueError:
        if config.note == "raise and end late":
            time.sleep(30)
        raise


def run(config: RunConfig) -> None:
    with join_ranks(config.training, config.seed) as ranks:
        wait_for_all(ranks)
        if config.note.startswith("raise") and ranks.rank == 1:
            raise ValueError("rank 1 has had enough")
        if config.note == "kill" and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if config.note == "kill after the other has ended" and ranks.rank == 0:
            time.sleep(2)
            os.kill(os.getpid(), signal.SIGKILL)
        if config.note == "kill after the other has ended":
            return
        if config.note == "hang":
            _leave_pid(Path(config.runs_dir), ranks.rank)
            time.sleep(600)
        wait_for_all(ranks)
        threads = f"{os.environ['OMP_NUM_THREADS']} of {os.environ['MKL_NUM_THREADS']}"
        print(f"rank {ranks.rank} of {ranks.world_size} is well, {threads} threads, {Path.cwd()}", flush=True)


def _leave_pid(folder: Path, rank: int) -> None:
    staging = folder / f"staging-{rank}"
    staging.write_text(str(os.getpid()))
    staging.rename(folder / f"pid-{rank}")


if __name__ == "__main__":
    main(sys.argv[1:])
