"""The training loop of every network here: distributed, repeatable, resumable, and never silently wrong.

One step on all ranks: each takes its rows, they add up what they hold, and the gradients of the summed losses, which
DistributedDataParallel averages, are scaled to the exact gradients of the mean loss over the global batch, however
unevenly the rows are spread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._inductor.config  # deterministic algorithms and Adam need it: loaded here, it is not in a fit's seconds
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from adacalib.model.checkpoint import fingerprint_of
from adacalib.model.distributed import Ranks, begin_sum_over_ranks, check_equal_on_ranks, digest_of, seed_rank
from adacalib.model.epoch_checkpoints import EpochCheckpoints, EpochRecord, EpochState
from adacalib.model.progress import Progress
from adacalib.model.row_files import RowFiles, StreamError, deal_pieces, join_rows
from adacalib.model.stream import Batch
from adacalib.model.training_plan import (
    Columns,
    NonFiniteLoss,
    StepLoss,
    TrainingPlan,
    check_rows,
    compute_mean_loss,
    describe_fault,
    raise_faults,
    stream_columns,
    stream_plan,
    to_tensors,
)

__all__ = [
    "Columns",
    "NonFiniteLoss",
    "StepLoss",
    "TrainingPlan",
    "TrainingResult",
    "compute_mean_loss",
    "stream_columns",
    "to_tensors",
    "train",
    "train_on_all",
]


log = logging.getLogger("adacalib")

ALL_ROWS = "all"
"""Folder of `train_on_all`'s checkpoints, inside those of the training that chose the epochs."""

LAST_WAS_BEST = "%s: the last of %d epochs was the best, so more may do better; raise calibrator.auxiliary.epochs"


@dataclass(frozen=True)
class TrainingResult:
    """What a training tells about itself: its epochs from 0 (where there are held-out rows), and the one kept."""

    records: tuple[EpochRecord, ...]
    chosen_epoch: int

    def loss_curve(self) -> list[dict[str, Any]]:
        """The epochs as JSON can hold them."""
        return [record.as_json() for record in self.records]


def train(
    module: nn.Module,
    step_loss: StepLoss,
    rows: RowFiles,
    plan: TrainingPlan,
    ranks: Ranks,
    *,
    held_out: RowFiles | None = None,
    held_out_loss: StepLoss | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> TrainingResult:
    """Trains a module in place with Adam; to be called on every rank.

    Args:
        module: on `ranks.device`, the same on every rank; its buffers must not depend on the rows.
        step_loss: the loss to minimise is the ratio of the sums of its two results over all ranks. It may use the
            module in any way. A term that is not a mean over rows (a penalty) goes in times the sum of weights.
        rows: the training rows; a rank may get none of them.
        held_out: rows whose loss is computed, in eval mode, before the first and after each epoch.
        held_out_loss: their loss, where it is not `step_loss`.
        on_epoch: called with 1, 2, … before each epoch on every rank (a temperature that falls, say). It must
            depend on the epoch alone, or a resumed run ends elsewhere.

    Raises:
        NonFiniteLoss: on every rank, with the rank and file, before the optimizer moves.
        StreamError: the rows that arrived are not the rows written.
        CheckpointMismatch: resume was asked for and the checkpoint belongs to other settings or another number of
            ranks.
        RanksDisagree: the parameters are not bit-equal on all ranks at the end.
        ValueError: the best epoch is to be kept, but there are no held-out rows to choose by.
    """
    if plan.keeps == "best_epoch" and (held_out is None or held_out.rows == 0):
        raise ValueError(f"{plan.what}: no held-out rows to choose the epoch by; hold rows out, or keep the last epoch")
    if rows.rows == 0:
        raise StreamError(f"{rows.name}: no rows to train the {plan.what} on; check the split and the row filter")
    loop = _Loop(module, step_loss, rows, plan, ranks, held_out, held_out_loss or step_loss)
    checkpoints = EpochCheckpoints(plan.checkpoints, plan.training.keep_checkpoints, loop.identity(), ranks)
    state = checkpoints.load() if plan.training.resume else None
    if state is None:
        checkpoints.clear()
        state = loop.first_state()
    else:
        loop.restore(state)
    with Progress(plan.what, plan.epochs, visible=ranks.is_first) as progress:
        for epoch in range(state.epoch + 1, plan.epochs + 1):
            if _is_over(state, plan):
                break
            if on_epoch is not None:
                on_epoch(epoch)
            state = loop.next_state(state, progress)
            checkpoints.save(state)
    if plan.keeps != "last_step":
        module.load_state_dict(state.best_module)
    was_last_best = plan.keeps == "best_epoch" and state.best_epoch == plan.epochs > 0
    if was_last_best and ranks.is_first:
        log.warning(LAST_WAS_BEST, plan.what, plan.epochs)
    check_equal_on_ranks(ranks, module.state_dict(), f"{plan.what}: parameters")
    return TrainingResult(state.records, plan.epochs if plan.keeps == "last_step" else state.best_epoch)


def train_on_all(
    module: nn.Module,
    step_loss: StepLoss,
    rows: RowFiles,
    held_out: RowFiles,
    plan: TrainingPlan,
    ranks: Ranks,
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Trains a fresh module on training and held-out rows alike, for the epochs of the plan; called on every rank.

    For what held-out rows have chosen the number of epochs for. Where these are the latest days, they are the ones that
    most resemble what comes, and a module that never saw them pays for having been judged by them.

    Args:
        module, step_loss, ranks, on_epoch: as in `train`.
        plan: of the training that chose, with the epochs that it chose.
    """
    own = replace(
        plan,
        what=f"{plan.what}, all rows",
        keeps="last_epoch",
        patience=None,
        checkpoints=plan.checkpoints / ALL_ROWS,  # inside: they go when the training that chose starts anew
    )
    train(module, step_loss, join_rows(rows, held_out), own, ranks, on_epoch=on_epoch)


class _Step(nn.Module):
    """What DistributedDataParallel wraps: the loss of one batch, or of none, over all parameters."""

    def __init__(self, module: nn.Module, step_loss: StepLoss) -> None:
        super().__init__()
        self.module = module
        self.step_loss = step_loss
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def forward(self, columns: Columns | None) -> tuple[Tensor, Tensor]:
        zero: Tensor = _Zero.apply(*self.trained)  # type: ignore[no-untyped-call]
        if columns is None:
            return zero, zero.detach()
        loss, weight = self.step_loss(self.module, columns)
        return loss.double() + zero, weight.detach().double()


class _Zero(torch.autograd.Function):
    """0 as a function of parameters, with gradient 0: so each has one, also where a batch's loss does not use it."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        return parameters[0].new_zeros((), dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None,) * len(ctx.needs_input_grad)  # undefined gradients, which DistributedDataParallel takes for 0


class _Loop:
    """One training on one rank; all its methods are called on every rank."""

    def __init__(
        self,
        module: nn.Module,
        step_loss: StepLoss,
        rows: RowFiles,
        plan: TrainingPlan,
        ranks: Ranks,
        held_out: RowFiles | None,
        held_out_loss: StepLoss,
    ) -> None:
        self.module, self.rows, self.plan, self.ranks = module, rows, plan, ranks
        self.held_out, self.held_out_loss = held_out, held_out_loss
        self.optimizer = torch.optim.Adam(module.parameters(), lr=plan.learning_rate, fused=True)
        self.parallel = DistributedDataParallel(_Step(module, step_loss), forward_sync_buffers=False)
        # The order in which gradients are summed is settled in the first backward pass. It shall be the same one in a
        # fresh and in a resumed run, so it is not left to the first batch.
        self.parallel(None)[0].backward()

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree in to be resumed."""
        return {
            "settings": self.plan.settings,
            "ranks": self.ranks.world_size,
            "seed": self.plan.seed,
            "epochs": self.plan.epochs,
            "batch_size": self.plan.batch_size,
            "learning_rate": self.plan.learning_rate,
            "patience": self.plan.patience,
            "keeps": self.plan.keeps,
            "parameters": {name: list(tensor.shape) for name, tensor in self.module.state_dict().items()},
            "files": fingerprint_of([Path(path).name for path in self.rows.paths]),
            "row_groups": [list(groups) for groups in self.rows.row_groups],
            "rows_from": self.rows.origin,
            "tables": digest_of(dict(self.module.named_buffers())),
            "held_out_rows": self.held_out.rows if self.held_out is not None else 0,
        }

    def first_state(self) -> EpochState:
        started = time.monotonic()
        loss = self._held_out_loss()
        record = EpochRecord(0, None, loss, 0, time.monotonic() - started, 0.0)
        return EpochState(
            epoch=0,
            module=_copy(self.module),
            optimizer={},
            best_module=_copy(self.module),
            best_epoch=0,
            best_loss=loss,
            records=() if loss is None else (record,),
        )

    def restore(self, state: EpochState) -> None:
        self.module.load_state_dict(state.module)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state.optimizer_by_parameter(), "param_groups": groups})

    def next_state(self, state: EpochState, progress: Progress) -> EpochState:
        epoch = state.epoch + 1
        seed_rank(self.ranks, self.plan.seed, epoch)
        record, evaluated = self._run_epoch(epoch, progress)
        progress.end_epoch(record)
        is_best = self.plan.keeps == "last_epoch" or (
            record.held_out_loss is not None and (state.best_loss is None or record.held_out_loss < state.best_loss)
        )
        return EpochState(
            epoch=epoch,
            module=_copy(self.module),
            optimizer=EpochState.flatten_optimizer(self.optimizer.state_dict()["state"]),
            best_module=evaluated if is_best else state.best_module,
            best_epoch=epoch if is_best else state.best_epoch,
            best_loss=record.held_out_loss if is_best else state.best_loss,
            records=(*state.records, record),
        )

    def _held_out_loss(self) -> float | None:
        if self.held_out is None or self.held_out.rows == 0:
            return None
        return compute_mean_loss(self.module, self.held_out_loss, self.held_out, self.plan, self.ranks)

    def _run_epoch(self, epoch: int, progress: Progress) -> tuple[EpochRecord, dict[str, Tensor]]:
        """One epoch; gives its record and the state whose held-out loss stands in it."""
        self.module.train()
        started, waited = time.monotonic(), 0.0
        sums = np.zeros(3)
        mean = _MeanOfSteps(self.module) if self.plan.keeps != "last_step" else None
        batches = stream_plan(self.rows, self.plan, self.ranks, self.plan.rank_batch_size(self.ranks), epoch)
        progress.start_epoch(epoch, self._count_steps(epoch))
        while True:
            asked = time.monotonic()
            batch = next(batches, None)
            waited += time.monotonic() - asked
            step = self._take_step(batch)
            if step is None:
                break
            sums += step
            if mean is not None:
                mean.add()
            seconds = time.monotonic() - started
            progress.step(step[1] / step[2], int(sums[0]), seconds, waited / seconds)
        n_rows, loss, weight = sums
        check_rows(self.rows, int(n_rows))
        seconds = time.monotonic() - started
        reached = _copy(self.module)
        if mean is not None:
            mean.apply()
        evaluated = _copy(self.module)
        record = EpochRecord(epoch, float(loss / weight), self._held_out_loss(), int(n_rows), seconds, waited / seconds)
        self.module.load_state_dict(reached)
        return record, evaluated

    def _take_step(self, batch: Batch | None) -> np.ndarray[Any, Any] | None:
        """One step on all ranks; gives global (rows, loss, weight), or None, without moving, when no rank has rows."""
        columns = None if batch is None else to_tensors(batch, self.ranks.device)
        loss, weight = self.parallel(columns)
        own_loss, own_weight = loss.item(), weight.item()
        fault = None if batch is None else describe_fault(own_loss, own_weight, batch, self.ranks)
        own = np.array([0 if batch is None else len(batch), own_loss, own_weight, fault is not None], np.float64)
        sums = begin_sum_over_ranks(self.ranks, own)  # on its way while the gradients are computed
        self.optimizer.zero_grad()
        loss.backward()
        *step, faults = sums()
        if faults:
            raise_faults(self.ranks, fault, self.plan.what, "training")
        if step[0] == 0:
            return None
        self._scale_gradients(self.ranks.world_size / step[2])
        self.optimizer.step()
        return np.array(step)

    def _scale_gradients(self, factor: float) -> None:
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def _count_steps(self, epoch: int) -> int:
        dealt = deal_pieces(self.rows, self.ranks.world_size, self.plan.seed, epoch)
        most = max(sum(piece.rows for piece in pieces) for pieces in dealt)
        return math.ceil(most / self.plan.rank_batch_size(self.ranks))


class _MeanOfSteps:
    """The mean of a module's parameters over the steps of an epoch: most of the noise that single steps leave is gone.

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters = list(module.parameters())
        self.sums = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in self.parameters]
        self.n_steps = 0

    def add(self) -> None:
        self.n_steps += 1
        for total, parameter in zip(self.sums, self.parameters, strict=True):
            total += parameter.detach()

    def apply(self) -> None:
        with torch.no_grad():
            for total, parameter in zip(self.sums, self.parameters, strict=True):
                parameter.copy_(total / self.n_steps)


def _is_over(state: EpochState, plan: TrainingPlan) -> bool:
    """Whether held-out loss has not improved for too long; the same on every rank, and after a resume."""
    return plan.keeps == "best_epoch" and plan.patience is not None and state.epoch - state.best_epoch >= plan.patience


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
