"""Comparisons and ablations for tests: the session of the tests, trainings in this process, a small configuration."""

from __future__ import annotations

import copy
import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from adacalib.config import RunConfig
from jobs import pipeline
from tests.small_runs import make_config, merge

CHANGES: dict[str, Any] = {
    "features": {"numeric": ["price"], "categorical": ["device"]},
    "bins": {"n_bins_candidates": [5]},
    "calibrator": {
        "epochs": 1,
        "learning_rate": 0.01,
        "auxiliary": {"hidden": [8], "epochs": 1, "batch_size": 256, "learning_rate": 0.01},
    },
}


def experiment_config(folder: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Own scores, a number and a category for the networks, one epoch each."""
    return make_config(folder, merge(CHANGES, changes or {}))


def make_console() -> Console:
    return Console(file=io.StringIO(), width=100)


def keep_session(patch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Runs use the session of the tests, which none of them stops."""
    lent = copy.copy(spark)
    lent.stop = lambda: None
    patch.setattr(pipeline, "start_session", lambda settings, name: lent)
    patch.setattr(pipeline, "_note_interrupts", lambda: None)


def train_in_process(patch: pytest.MonkeyPatch) -> None:
    """Trainings run in this process as the only rank."""

    def launch(module: str, config_path: Path, **_: Any) -> None:
        importlib.import_module(module).main(["--config", str(config_path)])

    patch.setattr("adacalib.launch.launch", launch)
