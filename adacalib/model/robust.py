"""Robust mode: the auxiliary network trained on the field part's logits, then what is fitted on its scores.

Shape letters: B samples in the batch, V field values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
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
    sum_cross_entropy,
)
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.functions import FunctionTable
from adacalib.model.re_level import Levelling, fit_on_scores
from adacalib.model.row_files import RowFiles
from adacalib.model.training import TrainingPlan, train, train_on_all

log = logging.getLogger("adacalib")

NO_HELD_OUT_ROWS = (
    "the auxiliary network was left untrained, without effect: training_rows has no held-out rows to choose its epoch "
    "by. Give more rows, or raise training.hold_out_share and run from build_training_rows again"
)


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
    """Cross-entropy and the network's penalty; see StepLoss."""
    loss, weight = compute_held_out_loss(module, columns)
    return loss + module.auxiliary.compute_penalty(weight), weight  # type: ignore[union-attr,operator]


def compute_held_out_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy alone; see StepLoss."""
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

    Held-out rows choose the epoch. Where rows are split by date they are the latest days, and the network is trained
    once more, for the chosen number of epochs, on all rows (`train_on_all`). Without held-out rows there is nothing to
    choose an epoch by: the network stays untrained, at zero effect, and `auxiliary_note` says so.

    Returns:
        The calibrator and what is to be told about its training (JSON).
    """
    module, plan = _prepare(config, fit, shape, rows, ranks)
    if held_out.rows == 0:
        if ranks.is_first:
            log.warning("%s: %s", held_out.name, NO_HELD_OUT_ROWS)
        calibrator = _re_level(config, fit, module.auxiliary.cpu(), rows, held_out, ranks, plan)
        return calibrator, {"chosen_epoch": 0, "auxiliary_note": NO_HELD_OUT_ROWS}
    result = train(module, compute_step_loss, rows, plan, ranks, held_out=held_out, held_out_loss=compute_held_out_loss)
    sees_all = config.split.by == "date" and result.chosen_epoch > 0
    if sees_all:
        module, plan = _prepare(config, fit, shape, rows, ranks)
        train_on_all(module, compute_step_loss, rows, held_out, replace(plan, epochs=result.chosen_epoch), ranks)
    calibrator = _re_level(config, fit, module.auxiliary.cpu(), rows, held_out, ranks, plan)
    return calibrator, {
        "chosen_epoch": result.chosen_epoch,
        "trained_on_all_rows": sees_all,
        "held_out_loss": result.records[result.chosen_epoch].held_out_loss,
        "loss_curves": {"auxiliary": result.loss_curve()},
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
    plan: TrainingPlan,
) -> Calibrator:
    """The calibrator with its level shifts, and with what the forward slope asks for."""
    levelling = _plan_levelling(config, fit)
    nothing = {"level_shift": np.zeros(len(fit.level_V)), "offset": np.zeros(1)}
    if not levelling.is_needed:
        return _finish(fit, auxiliary, nothing)
    # without parents, which these rows do not name: none of them is of an unseen value
    unshifted = Calibrator(fit.functions, nothing["level_shift"], fit.mean_logit, auxiliary)
    return _finish(fit, auxiliary, fit_on_scores(unshifted, (rows, held_out), levelling, plan, ranks))


def _prepare(
    config: RunConfig, fit: FieldFit, shape: AuxiliaryShape, rows: RowFiles, ranks: Ranks
) -> tuple[RobustCalibrator, TrainingPlan]:
    """A network at its start, in what it is trained in, and the plan of its training."""
    torch.manual_seed(config.seed)  # here: what ran before in this process leaves no trace
    settings = config.calibrator.auxiliary
    auxiliary = build_auxiliary(settings, shape, fit.weight_V, float(expit(fit.mean_logit)), takes_logit=True)
    plan = TrainingPlan(
        what="auxiliary network",
        epochs=settings.epochs,
        batch_size=settings.choose_batch_size(rows.rows),
        learning_rate=settings.learning_rate,
        seed=config.seed,
        columns=["label", "weight", "field_value_id", "uncalibrated_logit", *auxiliary.columns],
        checkpoints=Path(config.run_dir) / "checkpoints" / "calibrator",
        settings={"calibrator": config.calibrator.model_dump(mode="json"), **auxiliary.hyper_parameters},
        training=config.training,
        keeps="best_epoch",
        patience=settings.patience,
    )
    return RobustCalibrator(fit.functions, fit.mean_logit, auxiliary).to(ranks.device), plan
