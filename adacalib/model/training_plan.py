"""What is trained on what: the plan of a training, its rows as tensors, and the mean loss over rows.

A loss is a pair of sums, so that it adds up over batches and ranks: mean loss = Σ losses / Σ weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from adacalib.config import TrainingConfig
from adacalib.model.distributed import Ranks, gather_json, sum_over_ranks
from adacalib.model.row_files import RowFiles, StreamError
from adacalib.model.stream import Batch, stream_batches

Columns = dict[str, Tensor]

PASS_BATCH_SIZE = 16384
"""Rows at a time of a pass that takes no steps: as many as are worth their memory."""

StepLoss = Callable[[nn.Module, Columns], tuple[Tensor, Tensor]]
"""(module, columns of the batch as tensors) → (weighted sum of the rows' losses, sum of their weights), scalars."""


class NonFiniteLoss(RuntimeError):
    """A loss is NaN or infinite; the optimizer has not moved on it."""


@dataclass(frozen=True)
class TrainingPlan:
    """How to train one network.

    Attributes:
        what: names it in messages: "predictor".
        epochs: passes over the rows.
        batch_size: rows of one step over all ranks; each rank takes batch_size // number of ranks, at least 1.
        learning_rate: of Adam.
        seed: decides the order of the rows and the noise.
        columns: the columns that the loss needs.
        checkpoints: folder of the epoch checkpoints.
        settings: what JSON can hold: all that decides the result. A checkpoint is resumed under equal settings only.
        training: readers, time limit, checkpoints kept, resume.
        keeps: what the training ends with. last_step: what the last step reached. last_epoch and best_epoch: the mean
            of the parameters over the steps of the last epoch, or of the epoch of least held-out loss, epoch 0 (before
            any step) among them. Each epoch goes on from where the steps of the one before ended.
        patience: where the best epoch is kept: training ends after so many epochs in a row without a smaller held-out
            loss; None runs all epochs.
    """

    what: str
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    columns: Sequence[str]
    checkpoints: Path
    settings: Any
    training: TrainingConfig
    keeps: Literal["last_step", "last_epoch", "best_epoch"] = "last_step"
    patience: int | None = None

    def rank_batch_size(self, ranks: Ranks) -> int:
        """Rows of one step on one rank."""
        return max(1, self.batch_size // ranks.world_size)


def compute_mean_loss(
    module: nn.Module, step_loss: StepLoss, rows: RowFiles, plan: TrainingPlan, ranks: Ranks
) -> float:
    """Mean loss over rows, streamed, in eval mode and without gradients; the same on every rank.

    Raises:
        NonFiniteLoss: a batch's loss is NaN or infinite; with the rank and file.
        StreamError: no rows, or the rows that arrived are not the rows written.
    """
    was_training = module.training
    module.eval()
    sums = np.zeros(3)
    fault = None
    with torch.no_grad():
        for batch in stream_plan(rows, plan, ranks, PASS_BATCH_SIZE):
            loss, weight = (float(value) for value in step_loss(module, to_tensors(batch, ranks.device)))
            fault = fault or describe_fault(loss, weight, batch, ranks)
            sums += (len(batch), loss, weight)
    module.train(was_training)
    raise_faults(ranks, fault, plan.what, "held-out")
    n_rows, loss, weight = sum_over_ranks(ranks, sums)
    check_rows(rows, int(n_rows))
    return float(loss / weight)


def stream_columns(rows: RowFiles, plan: TrainingPlan, ranks: Ranks) -> Iterator[Columns]:
    """This rank's share of all rows, once, as tensors; to be called, and read to its end, on every rank.

    Raises:
        StreamError: the rows that arrived over all ranks are not the rows written.
    """
    arrived = 0
    for batch in stream_plan(rows, plan, ranks, PASS_BATCH_SIZE):
        arrived += len(batch)
        yield to_tensors(batch, ranks.device)
    check_rows(rows, int(sum_over_ranks(ranks, np.array([arrived]))[0]))


def to_tensors(batch: Batch, device: torch.device) -> Columns:
    """A batch's columns as tensors of their own memory, with the types they have in the files."""
    return {name: torch.from_numpy(np.array(values)).to(device) for name, values in batch.columns.items()}


def stream_plan(rows: RowFiles, plan: TrainingPlan, ranks: Ranks, batch_size: int, epoch: int = 0) -> Iterator[Batch]:
    """This rank's batches of one epoch; see `stream_batches`."""
    return stream_batches(
        rows,
        plan.columns,
        batch_size,
        rank=ranks.rank,
        world_size=ranks.world_size,
        seed=plan.seed,
        epoch=epoch,
        reader_threads=plan.training.reader_threads,
        wait_limit_seconds=plan.training.collective_timeout_seconds,
    )


def describe_fault(loss: float, weight: float, batch: Batch, ranks: Ranks) -> str | None:
    """What is wrong with a batch's loss and weight, with rank and files; None when both are fine."""
    if math.isfinite(loss) and math.isfinite(weight) and weight > 0:
        return None
    return f"rank {ranks.rank}: loss {loss:g} at weight {weight:g} on rows of {', '.join(batch.paths)}"


def raise_faults(ranks: Ranks, fault: str | None, what: str, kind: str) -> None:
    """Raises on every rank what any of them found; to be called on all.

    Raises:
        NonFiniteLoss: there is a fault on some rank.
    """
    faults = [found for found in gather_json(ranks, fault) if found is not None]
    if faults:
        raise NonFiniteLoss(
            f"{what}: {kind} loss is not finite, and no step was taken on it: {'; '.join(faults)}. Look there for "
            "features that are not finite or far out of range, or lower the learning rate"
        )


def check_rows(rows: RowFiles, arrived: int) -> None:
    """Holds the number of rows that arrived over all ranks against the number written.

    Raises:
        StreamError: they differ.
    """
    if arrived != rows.rows:
        raise StreamError(f"{rows.name}: {arrived} rows arrived over all ranks, {rows.rows} were written")
