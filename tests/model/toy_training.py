"""A small network, its rows and its plan, for the tests of the training; no test of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

from adacalib.config import RunConfig, TrainingConfig, parse_config
from adacalib.model.row_files import RowFiles, open_rows
from adacalib.model.training import TrainingPlan

COLUMNS = ("row_id", "label", "weight", "features")


def toy_columns(n_rows: int, first_id: int = 0) -> dict[str, Any]:
    """Rows whose label depends on their features; weights 0.5, 1.0 and 1.5."""
    rng = np.random.default_rng(n_rows + first_id)
    features = rng.normal(size=(n_rows, 2)).astype(np.float32)
    return {
        "row_id": np.arange(first_id, first_id + n_rows),
        "label": (rng.random(n_rows) < 1 / (1 + np.exp(-features[:, 0]))).astype(np.int8),
        "weight": 0.5 + 0.5 * (np.arange(n_rows) % 3),
        "features": features,
    }


def write_rows(table: Path, files: dict[str, list[int]], rows_in_manifest: int | None = None) -> RowFiles:
    """Writes a table: file name → rows of each of its row groups; ids count on from 0."""
    total = 0
    for name, row_groups in files.items():
        path = table / name
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = None
        for n_rows in row_groups:
            columns = toy_columns(n_rows, total)
            arrow = pa.table({**columns, "features": pa.array(list(columns["features"]), pa.list_(pa.float32()))})
            writer = writer or pq.ParquetWriter(path, arrow.schema)
            writer.write_table(arrow)
            total += n_rows
        if writer:
            writer.close()
    (table / "_manifest.json").write_text(json.dumps({"rows": total if rows_in_manifest is None else rows_in_manifest}))
    return open_rows(table)


class ToyModel(nn.Module):
    """A small network with noise in training, and a parameter that the loss does not use."""

    def __init__(self, seed: int = 3, noise: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.hidden = nn.Linear(2, 4)
        self.out = nn.Linear(4, 1)
        self.unused = nn.Parameter(torch.ones(3))
        self.noise = noise

    def forward(self, features_BA: Tensor) -> Tensor:
        logit_B: Tensor = self.out(torch.tanh(self.hidden(features_BA))).squeeze(1)
        if self.training and self.noise:
            logit_B = logit_B + self.noise * torch.randn_like(logit_B)
        return logit_B


def toy_loss(module: nn.Module, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy."""
    logit_B = module(columns["features"])
    loss_B = F.binary_cross_entropy_with_logits(logit_B, columns["label"].float(), reduction="none")
    return (columns["weight"] * loss_B).sum(), columns["weight"].sum()


@contextmanager
def noted_gradients(module: nn.Module) -> Iterator[list[dict[str, Any]]]:
    """The gradients that each step of an optimizer finds in here, by parameter; None where there is none."""
    steps: list[dict[str, Any]] = []

    def note(*_: Any) -> None:
        named = module.named_parameters()
        steps.append({name: None if own.grad is None else own.grad.tolist() for name, own in named})

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield steps
    finally:
        hook.remove()


def toy_plan(folder: Path, **changes: Any) -> TrainingPlan:
    """A plan; `changes` are of TrainingPlan."""
    settings = {
        "what": "toy",
        "epochs": 3,
        "batch_size": 16,
        "learning_rate": 0.05,
        "seed": 11,
        "columns": COLUMNS,
        "checkpoints": folder / "checkpoints",
        "settings": {"depth": 2},
        "training": TrainingConfig(collective_timeout_seconds=60),
    }
    return TrainingPlan(**{**settings, **changes})


def toy_config(folder: Path, note: str = "", **training: Any) -> RunConfig:
    """A run below `folder`; its file is `write_config`'s."""
    return parse_config(
        {
            "name": "toy",
            "runs_dir": str(folder / "runs"),
            "note": note,
            "input": {"path": "unused", "label": "label"},
            "fields": ["field"],
            "features": {"numeric": ["x"], "categorical": ["c"]},
            "predictor": {"epochs": 2, "batch_size": 64, "hidden": [8, 4, 4], "learning_rate": 0.02},
            "training": {"collective_timeout_seconds": 60, **training},
        }
    )


def write_config(config: RunConfig, path: Path) -> Path:
    """JSON is YAML too."""
    path.write_text(json.dumps(config.model_dump(mode="json")))
    return path


def state_bytes(module: nn.Module) -> dict[str, bytes]:
    """Name → bytes, to compare to the last bit."""
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}
