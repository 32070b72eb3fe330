"""Trains a calibrator whose functions and auxiliary network learn together: paper mode and NeuCalib, one protocol.

Held-out rows choose the epoch, as they do for the auxiliary network of robust mode. Without any (training on logit
cells) the last step is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from adacalib.cells.logit_cells import Floats
from adacalib.config import RunConfig
from adacalib.model.auxiliary import AuxiliaryNetwork, AuxiliaryShape, build_auxiliary
from adacalib.model.distributed import Ranks
from adacalib.model.row_files import RowFiles
from adacalib.model.training import train, train_on_all
from adacalib.model.training_plan import StepLoss, TrainingPlan

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class JointTraining(Generic[Module]):
    """What is trained.

    Attributes:
        what: names it in messages and in the loss curves: "neucalib".
        build: makes a fresh module, with an attribute `auxiliary` (its network or None), from the seed that is set.
        step_loss, held_out_loss: what is minimised, and what chooses the epoch.
        on_epoch: called before each epoch with the module, the number of the epoch and the largest one.
        settings: what decides the result beside the calibrator's configuration (JSON).
    """

    what: str
    build: Callable[[], Module]
    step_loss: StepLoss
    held_out_loss: StepLoss
    on_epoch: Callable[[Module, int, int], None] | None = None
    settings: Any = None


def train_jointly(
    training: JointTraining[Module], config: RunConfig, rows: RowFiles, held_out: RowFiles, ranks: Ranks
) -> tuple[Module, dict[str, Any]]:
    """Trains; called on every rank.

    The held-out rows are among the cells that the functions start from. They weigh little in each start, so the choice
    of the epoch hardly feels it, but in field values of few samples it leans towards the start.

    Args:
        rows: training rows with hold_out = 0.
        held_out: those with hold_out = 1. Where rows are split by date they are the latest days, and a fresh module is
            trained on all rows for the epochs that they chose.

    Returns:
        The module, and what is to be told about its training (JSON).

    Raises:
        StreamError: there are no rows to train on, or some did not arrive.
    """

    def build() -> Module:
        torch.manual_seed(config.seed)
        return training.build().to(ranks.device)

    module = build()
    plan = _plan(training, config, module, rows.rows, keeps_best_epoch=held_out.rows > 0)

    def on_epoch(epoch: int) -> None:
        if training.on_epoch is not None:
            training.on_epoch(module, epoch, plan.epochs)

    result = train(
        module,
        training.step_loss,
        rows,
        plan,
        ranks,
        held_out=held_out,
        held_out_loss=training.held_out_loss,
        on_epoch=on_epoch,
    )
    sees_all = config.split.by == "date" and held_out.rows > 0 and result.chosen_epoch > 0
    if sees_all:
        module, chosen = build(), replace(plan, epochs=result.chosen_epoch)
        train_on_all(module, training.step_loss, rows, held_out, chosen, ranks, on_epoch=on_epoch)
    return module.cpu(), {
        "chosen_epoch": result.chosen_epoch,
        "trained_on_all_rows": sees_all,
        "loss_curves": {training.what: result.loss_curve()},
    }


def build_joint_auxiliary(
    config: RunConfig, shape: AuxiliaryShape, weight_V: Floats, mean_label: float
) -> AuxiliaryNetwork | None:
    """The network of a calibrator that learns together with it; None where the run has none.

    Args:
        weight_V: sum of sample weights of each dense id, 0 for id 0.
        mean_label: rate over all samples of the fit.
    """
    if not config.has_auxiliary_network:
        return None
    return build_auxiliary(config.calibrator.auxiliary, shape, weight_V, mean_label, takes_logit=False)


def _plan(
    training: JointTraining[Module], config: RunConfig, module: Module, n_rows: int, keeps_best_epoch: bool
) -> TrainingPlan:
    settings = config.calibrator
    auxiliary: AuxiliaryNetwork | None = module.auxiliary  # type: ignore[assignment]
    features = () if auxiliary is None else auxiliary.columns
    return TrainingPlan(
        what=training.what,
        epochs=settings.epochs if auxiliary is None else settings.auxiliary.epochs,  # as many as AdaCalib's network
        batch_size=settings.auxiliary.choose_batch_size(n_rows),
        learning_rate=settings.learning_rate if auxiliary is None else settings.auxiliary.learning_rate,
        seed=config.seed,
        columns=["label", "weight", "field_value_id", "uncalibrated_logit", *features],
        checkpoints=Path(config.run_dir) / "checkpoints" / "calibrator",
        settings={"calibrator": settings.model_dump(mode="json"), "own": training.settings},
        training=config.training,
        keeps="best_epoch" if keeps_best_epoch else "last_step",
        patience=settings.auxiliary.patience if keeps_best_epoch else None,
    )
