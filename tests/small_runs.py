"""Small runs for tests: a synthetic world, its table on disk, its configuration, and the stages as a run calls them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from adacalib.config import RunConfig, parse_config
from adacalib.io import write_json
from adacalib.launch import launch

FIRST_DAY = date(2024, 1, 1)
N_FIELD_VALUES = 12
DEVICE_EFFECT = (-0.4, 0.0, 0.5)
"""Log-odds of phone, desk and watch."""


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with another one's keys written over it, section by section."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged


def make_config(folder: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Own scores, one field `shop`, the input in folder/input, the run in folder/runs/small."""
    base = {
        "name": "small",
        "runs_dir": str(folder / "runs"),
        "input": {"path": str(folder / "input"), "label": "label", "score": "score"},
        "fields": ["shop"],
        "evaluation": {"jackknife_groups": 10, "attainable_draws": 2},
    }
    return parse_config(merge(base, changes or {}))


def predictor_config(folder: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """No own scores: a small predictor on a number and a category; an array besides for the auxiliary network."""
    base = {
        "input": {"score": None},
        "features": {"numeric": ["price", "taste"], "categorical": ["device"]},
        "predictor": {"features": ["price", "device"], "hidden": [16, 16, 8], "batch_size": 128, "learning_rate": 0.01},
        "calibrator": {
            "learning_rate": 0.01,
            "auxiliary": {"hidden": [16], "epochs": 3, "batch_size": 128, "learning_rate": 0.01},
        },
    }
    return make_config(folder, merge(base, changes or {}))


def draw_world(n_rows: int, seed: int = 5) -> dict[str, list[Any]]:
    """A table with a strong effect of `shop` (a long tail of 12) that the score does not know.

    The score knows the features; the truth adds a level and a slope per shop. Weights, days and a key come along.
    """
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, N_FIELD_VALUES + 1)
    shop = rng.choice(N_FIELD_VALUES, n_rows, p=share / share.sum())
    device = rng.choice(3, n_rows)
    price, taste = rng.normal(40, 10, n_rows), rng.normal(0, 1, (n_rows, 2))
    known = -1.0 + 0.05 * (price - 40) + 0.5 * taste[:, 0] + np.array(DEVICE_EFFECT)[device]
    level, slope = rng.normal(0, 1.2, N_FIELD_VALUES), rng.normal(0, 0.2, N_FIELD_VALUES)
    truth = 1 / (1 + np.exp(-(known + level[shop] + slope[shop] * (known + 1))))
    days = np.sort(rng.integers(0, 10, n_rows))
    return {
        "label": (rng.random(n_rows) < truth).astype(np.int32).tolist(),
        "score": (1 / (1 + np.exp(-known))).tolist(),
        "shop": [f"shop {i}" for i in shop],
        "town": [f"town {i % 3}" for i in shop],
        "price": price.tolist(),
        "taste": taste.tolist(),
        "device": [("phone", "desk", "watch")[i] for i in device],
        "w": rng.choice([0.5, 1.0, 2.0], n_rows).tolist(),
        "day": [FIRST_DAY + timedelta(days=int(i)) for i in days],
        "key": [f"row {i}" for i in range(n_rows)],
    }


def write_input(
    folder: Path, columns: Mapping[str, Sequence[Any]], *, n_files: int = 1, order: Iterable[int] | None = None
) -> Path:
    """Writes columns as Parquet files into folder/input; rows in the order given are dealt to the files in turn."""
    table = pa.table(dict(columns))
    if order is not None:
        table = table.take(pa.array(order, pa.int64()))
    target = folder / "input"
    target.mkdir(parents=True)
    for i in range(n_files):
        pq.write_table(table.take(pa.array(range(i, len(table), n_files), pa.int64())), target / f"part-{i}.parquet")
    return target


def run_stages(
    spark: SparkSession, config: RunConfig, *, until: str = "evaluate", in_process: bool = True
) -> RunConfig:
    """Runs a configuration's stages up to and with `until`, as jobs/pipeline.py does.

    Args:
        in_process: training in this process as the only rank, instead of one started by the launcher.
    """
    for stage in config.stages:
        run_stage(spark, config, stage, in_process=in_process)
        if stage == until:
            break
    return config


def run_stage(spark: SparkSession, config: RunConfig, stage: str, *, in_process: bool = True) -> None:
    """Runs one stage."""
    if stage in ("train_predictor", "train_calibrator"):
        config_path = config.run_dir / "effective_config.json"
        write_json(config_path, config.model_dump(mode="json"))
        if in_process:
            importlib.import_module(f"jobs.{stage}").main(["--config", str(config_path)])
        else:
            launch(f"jobs.{stage}", config_path, ranks=config.training.ranks, timeout_seconds=120)
    elif stage != "report":
        importlib.import_module(f"jobs.{stage}").run(spark, config)
