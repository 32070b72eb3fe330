"""Robust mode: the auxiliary network trained on the field part's logits, then what is fitted on its scores.

Shape letters: B samples in the batch, V field values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from adacalib.cells.field_part import FieldFit
from adacalib.cells.functions import BinFunctions, interpolate
from adacalib.cells.logit_cells import Floats, LogitCells
from adacalib.config import RunConfig
from adacalib.model.auxiliary import (
    LOGIT_SCALE,
    AuxiliaryNetwork,
    AuxiliaryShape,
    build_auxiliary,
    compute_embedding_share,
    compute_information,
    sum_cross_entropy,
)
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.functions import FunctionTable
from adacalib.model.re_level import Levelling, fit_on_scores
from adacalib.model.row_files import RowFiles
from adacalib.model.training import TrainingPlan, TrainingResult, train, train_on_all

log = logging.getLogger("adacalib")

NO_HELD_OUT_ROWS = (
    "the auxiliary network was left untrained, without effect: training_rows has no held-out rows to choose its epoch "
    "by. Give more rows, or raise training.hold_out_share and run from build_training_rows again"
)


TRIAL_EPOCHS = 2
"""Epochs after which the better of the networks with and without embedding goes on alone.

A network without the embedding that the data want falls behind, or one with an embedding that they do not want, within
the first epochs. Where the two are level after them, either will do.
"""


class RobustCalibrator(nn.Module):
    """Robust mode in training: the field part's functions as they are, and the network.

    The functions are not in its checkpoints: they are fitted again before a training goes on.

    Args:
        center: log-odds of the mean label.
    """

    def __init__(self, functions: BinFunctions, center: float, auxiliary: AuxiliaryNetwork) -> None:
        super().__init__()
        self.table = FunctionTable(functions, persistent=False)
        self.center = center
        self.auxiliary = auxiliary

    def forward(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Calibrated log-odds (B,), float64."""
        ids_B = columns["field_value_id"].long()
        logit_B: Tensor = self.table(ids_B, columns["uncalibrated_logit"])
        term_B = self.auxiliary(columns, ids_B, (logit_B - self.center) / LOGIT_SCALE)
        return torch.add(logit_B, term_B.double())


def compute_step_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy; see StepLoss."""
    return sum_cross_entropy(module(columns), columns)


def train_robust(
    config: RunConfig,
    fit: FieldFit,
    shape: AuxiliaryShape,
    rows: RowFiles,
    held_out: RowFiles,
    ranks: Ranks,
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains the auxiliary network, fits the re-level, applies the forward slope; same result on every rank.

    With `field_value_embedding: auto` the network is trained with and without the embedding for TRIAL_EPOCHS, and the
    one with the smaller held-out loss goes on. Where rows are split by date the held-out ones are the latest days, and
    the network is trained once more, for the chosen number of epochs, on all rows (`train_on_all`). Without held-out
    rows there is nothing to choose an epoch by: the network stays untrained, at zero effect, and `auxiliary_note` says
    so.

    Returns:
        The calibrator and what is to be told about its training (JSON).
    """
    if held_out.rows == 0:
        if ranks.is_first:
            log.warning("%s: %s", held_out.name, NO_HELD_OUT_ROWS)
        auxiliary = _build_auxiliary(config, fit, shape, has_embedding=False)
        calibrator = _re_level(config, fit, auxiliary, rows, held_out, ranks)
        return calibrator, {"field_value_embedding": False, "chosen_epoch": 0, "auxiliary_note": NO_HELD_OUT_ROWS}
    wanted = config.calibrator.auxiliary.field_value_embedding
    variants = {"off": (False,), "on": (True,), "auto": (False, True)}[wanted]
    variant = partial(_train_variant, config, fit, shape, rows, held_out, ranks)
    trials = {has: variant(has, until_epoch=TRIAL_EPOCHS)[1] for has in variants} if len(variants) > 1 else {}
    kept = min(trials, key=lambda has: (_trial_loss(trials[has]), has)) if trials else variants[0]  # off in a tie
    auxiliary, result = variant(kept, goes_on=bool(trials))
    sees_all = config.split.by == "date" and result.chosen_epoch > 0
    if sees_all:
        module, plan = _prepare(config, fit, shape, rows, ranks, kept)
        train_on_all(module, compute_step_loss, rows, held_out, replace(plan, epochs=result.chosen_epoch), ranks)
        auxiliary = module.auxiliary.cpu()
    results = trials | {kept: result}
    calibrator = _re_level(config, fit, auxiliary, rows, held_out, ranks)
    name = {False: "without_embedding", True: "with_embedding"}
    return calibrator, {
        "field_value_embedding": kept,
        "chosen_epoch": result.chosen_epoch,
        "trained_on_all_rows": sees_all,
        "held_out_losses": {name[has]: _held_out_loss(each) for has, each in results.items()},
        "loss_curves": {name[has]: each.loss_curve() for has, each in results.items()},
    }


def calibrate_without_rows(config: RunConfig, fit: FieldFit, cells: LogitCells) -> Calibrator:
    """Robust mode without auxiliary network: the functions are there, all else needs cells only."""
    logit = interpolate(fit.functions, cells.field_value_id, cells.logit) - fit.level_V[cells.field_value_id]
    return _finish(fit, None, _plan_levelling(config, fit).fit(replace(cells, logit=logit)))


def _plan_levelling(config: RunConfig, fit: FieldFit) -> Levelling:
    """Each field value by itself, or all of them alike where no field effect is wanted."""
    has_effect = fit.chosen == "robust" and config.calibrator.value_level
    shifts: Literal["values", "all"] = "values" if has_effect else "all"
    return Levelling(fit.level_V, shifts if config.calibrator.re_level else "nothing", fit.forward_slope)


def _finish(fit: FieldFit, auxiliary: AuxiliaryNetwork | None, found: Mapping[str, Floats]) -> Calibrator:
    levels_P = fit.parent_level_P if len(fit.parent_level_P) > 1 else None  # None where parents play no part
    slope, offset = fit.forward_slope, float(found["offset"][0])
    return Calibrator(
        fit.functions, found["level_shift"], fit.mean_logit, auxiliary, levels_P, slope=slope, offset=offset
    )


def _re_level(
    config: RunConfig,
    fit: FieldFit,
    auxiliary: AuxiliaryNetwork,
    rows: RowFiles,
    held_out: RowFiles,
    ranks: Ranks,
) -> Calibrator:
    """The calibrator with its level shifts, and with what the forward slope asks for."""
    levelling = _plan_levelling(config, fit)
    nothing = {"level_shift": np.zeros(len(fit.level_V)), "offset": np.zeros(1)}
    if not levelling.is_needed:
        return _finish(fit, auxiliary, nothing)
    plan = _plan(config, auxiliary, rows.rows, auxiliary.value_embedding is not None)
    # without parents, which these rows do not name: none of them is of an unseen value
    unshifted = Calibrator(fit.functions, nothing["level_shift"], fit.mean_logit, auxiliary)
    return _finish(fit, auxiliary, fit_on_scores(unshifted, (rows, held_out), levelling, plan, ranks))


def _build_auxiliary(config: RunConfig, fit: FieldFit, shape: AuxiliaryShape, has_embedding: bool) -> AuxiliaryNetwork:
    # seeded here: what ran before in this process (another variant, or nothing in a resumed run) leaves no trace
    torch.manual_seed(config.seed)
    n_values = len(fit.level_V) if has_embedding else None
    mean_label = float(expit(fit.mean_logit))
    share_V = compute_embedding_share(fit.weight_V, mean_label)
    information = float(compute_information(fit.weight_V.sum(), mean_label))
    return build_auxiliary(config.calibrator.auxiliary, shape, information, n_values, True, share_V)


def _train_variant(
    config: RunConfig,
    fit: FieldFit,
    shape: AuxiliaryShape,
    rows: RowFiles,
    held_out: RowFiles,
    ranks: Ranks,
    has_embedding: bool,
    *,
    until_epoch: int | None = None,
    goes_on: bool = False,
) -> tuple[AuxiliaryNetwork, TrainingResult]:
    """Trains one network, to the end or until an epoch, or goes on from where such a call has stopped."""
    module, plan = _prepare(config, fit, shape, rows, ranks, has_embedding)
    if goes_on:
        plan = replace(plan, training=plan.training.model_copy(update={"resume": True}))
    result = train(module, compute_step_loss, rows, plan, ranks, held_out=held_out, until_epoch=until_epoch)
    return module.auxiliary.cpu(), result


def _prepare(
    config: RunConfig,
    fit: FieldFit,
    shape: AuxiliaryShape,
    rows: RowFiles,
    ranks: Ranks,
    has_embedding: bool,
) -> tuple[RobustCalibrator, TrainingPlan]:
    """A network at its start, in what it is trained in, and the plan of its training."""
    auxiliary = _build_auxiliary(config, fit, shape, has_embedding)
    module = RobustCalibrator(fit.functions, fit.mean_logit, auxiliary).to(ranks.device)
    return module, _plan(config, auxiliary, rows.rows, has_embedding)


def _plan(config: RunConfig, auxiliary: AuxiliaryNetwork, n_rows: int, has_embedding: bool) -> TrainingPlan:
    settings = config.calibrator.auxiliary
    suffix = "_embedding" if has_embedding else ""
    return TrainingPlan(
        what="auxiliary + embedding" if has_embedding else "auxiliary network",
        epochs=settings.epochs,
        batch_size=settings.choose_batch_size(n_rows),
        learning_rate=settings.learning_rate,
        seed=config.seed,
        columns=["label", "weight", "field_value_id", "uncalibrated_logit", *auxiliary.columns],
        checkpoints=Path(config.run_dir) / "checkpoints" / f"calibrator{suffix}",
        settings={"calibrator": config.calibrator.model_dump(mode="json"), **auxiliary.hyper_parameters},
        training=config.training,
        keeps="best_epoch",
        patience=settings.patience,
    )


def _trial_loss(result: TrainingResult) -> float:
    """The least held-out loss of the trial's epochs; a resumed training may be past them."""
    losses = [record.held_out_loss for record in result.records[: TRIAL_EPOCHS + 1]]
    return min(loss for loss in losses if loss is not None)


def _held_out_loss(result: TrainingResult) -> float:
    loss = result.records[result.chosen_epoch].held_out_loss
    if loss is None:
        raise ValueError("training kept its best epoch without a held-out loss")
    return loss
