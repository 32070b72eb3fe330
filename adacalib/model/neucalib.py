"""NeuCalib: one monotone piecewise-linear function for all field values, and the auxiliary network (Pan et al. 2020).

Source: "Field-aware Calibration: A Simple and Empirically Strong Method for Reliable Probabilistic Predictions", WWW
2020, as the AdaCalib paper compares with it: the function's knots are free parameters, inversions are penalised, the
network sees the features with the field value's embedding. Its network is as large as AdaCalib's. Where the source is
silent it is given the better choice: the knots start on the global isotonic curve. From the identity they would be far
from done after the same number of epochs, because the penalty holds neighbours together that ought to pass each other.

Shape letters: B samples in the batch, V field values, J bounds, R = 1 curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adacalib.cells.bin_bounds import BinBounds, compute_bin_bounds
from adacalib.cells.functions import BinFunctions
from adacalib.cells.global_curve import GlobalCurve, fit_global_curve
from adacalib.cells.logit_cells import LogitCells, compute_mean_label, pool_values
from adacalib.config import RunConfig
from adacalib.model.auxiliary import (
    AuxiliaryNetwork,
    AuxiliaryShape,
    build_auxiliary,
    compute_embedding_share,
    compute_information,
    sum_cross_entropy,
)
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.functions import interpolate
from adacalib.model.row_files import RowFiles
from adacalib.model.training import StepLoss, TrainingPlan, train, train_on_all

N_BINS = 100


class NeuCalib(nn.Module):
    """NeuCalib in training.

    Args:
        bounds: one row, the bounds of all samples.
        curve: where the knots start.
        auxiliary: the network, or None.
    """

    bin_bounds_J: Tensor

    def __init__(self, bounds: BinBounds, curve: GlobalCurve, auxiliary: AuxiliaryNetwork | None) -> None:
        super().__init__()
        n_bins = int(bounds.n_bins_V[0])
        bounds_J = torch.from_numpy(bounds.bin_bounds_VJ[0, : n_bins + 1].copy())
        self.register_buffer("bin_bounds_J", bounds_J, persistent=False)
        self.knots_J = nn.Parameter(torch.from_numpy(curve.evaluate(bounds_J.numpy())))
        self.auxiliary = auxiliary

    def slopes(self) -> Tensor:
        """Slopes of the bins; the outer ones go on beyond the ends."""
        slope_K: Tensor = self.knots_J.diff() / self.bin_bounds_J.diff()
        return slope_K

    def forward(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Calibrated log-odds (B,), float64."""
        logit_B = columns["uncalibrated_logit"].double()
        slope_K, row_B = self.slopes(), torch.zeros_like(logit_B, dtype=torch.long)
        calibrated_B = interpolate(
            self.bin_bounds_J[None],
            self.knots_J[None],
            row_B.new_full((1,), len(slope_K)),
            slope_K[:1],
            slope_K[-1:],
            row_B,
            logit_B,
        )
        if self.auxiliary is None:
            return calibrated_B
        term_B = self.auxiliary(columns, columns["field_value_id"].long(), logit_B)
        return torch.add(calibrated_B, term_B.double())

    def fold(self, n_values: int) -> Calibrator:
        """The serving calibrator: the one function for every field value, unseen ones too.

        Args:
            n_values: number of dense ids, id 0 included.
        """
        slope_K = self.slopes().detach().numpy()
        functions = BinFunctions(
            bin_bounds_RJ=self.bin_bounds_J.numpy()[None],
            knots_RJ=self.knots_J.detach().numpy()[None],
            n_bins_R=np.array([len(slope_K)]),
            slope_lower_R=slope_K[:1],
            slope_upper_R=slope_K[-1:],
            row_V=np.zeros(n_values, np.int64),
            shift_V=np.zeros(n_values),
        )
        return Calibrator(functions, np.zeros(n_values), 0.0, self.auxiliary)


def make_step_loss(penalty_weight: float) -> StepLoss:
    """Cross-entropy plus penalty_weight times the sum of all falls between neighbouring knots; see StepLoss."""

    def compute(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        loss, weight = sum_cross_entropy(module(columns), columns)
        falls = F.relu(-module.knots_J.diff()).sum()  # type: ignore[operator]
        return loss + penalty_weight * falls * weight, weight

    return compute


def compute_held_out_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy alone; see StepLoss."""
    return sum_cross_entropy(module(columns), columns)


def train_neucalib(
    config: RunConfig, cells: LogitCells, shape: AuxiliaryShape, rows: RowFiles, held_out: RowFiles, ranks: Ranks
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains NeuCalib; called on every rank. The epoch is chosen by held-out rows, as for AdaCalib's network.

    The held-out rows are among the cells that the knots start from: a hundredth of the rows decides each knot, so the
    choice of the epoch hardly feels it.

    Args:
        cells: logit cells of train ∪ dev, for the bounds and the start.
        rows: training rows with hold_out = 0.
        held_out: those with hold_out = 1; without any, the last epoch is kept. Where rows are split by date they are
            the latest days, and NeuCalib is trained once more on all rows, as AdaCalib's network is.

    Returns:
        The serving calibrator and what is to be told about its training (JSON).

    Raises:
        NoCellsError: there are no cells.
        StreamError: there are no rows to train on, or some did not arrive.
    """
    bounds = compute_bin_bounds(pool_values(cells), N_BINS)
    curve = fit_global_curve(cells)

    def build() -> NeuCalib:
        torch.manual_seed(config.seed)
        return NeuCalib(bounds, curve, _build_auxiliary(config, cells, shape)).to(ranks.device)

    module = build()
    plan = _plan(config, module.auxiliary, rows.rows, keeps_best_epoch=held_out.rows > 0)
    loss = make_step_loss(config.calibrator.penalty_weight)
    result = train(module, loss, rows, plan, ranks, held_out=held_out, held_out_loss=compute_held_out_loss)
    sees_all = config.split.by == "date" and held_out.rows > 0 and result.chosen_epoch > 0
    if sees_all:
        module = build()
        train_on_all(module, loss, rows, held_out, replace(plan, epochs=result.chosen_epoch), ranks)
    falls = int((module.knots_J.diff() < 0).sum())
    return module.cpu().fold(cells.n_values), {
        "chosen_epoch": result.chosen_epoch,
        "trained_on_all_rows": sees_all,
        "loss_curves": {"neucalib": result.loss_curve()},
        "n_falling_bins": falls,
    }


def _build_auxiliary(config: RunConfig, cells: LogitCells, shape: AuxiliaryShape) -> AuxiliaryNetwork | None:
    if not config.has_auxiliary_network:
        return None
    settings = config.calibrator.auxiliary
    n_values = None if settings.field_value_embedding == "off" else cells.n_values
    mean_label = compute_mean_label(cells.response.sum(), cells.weight.sum())
    share_V = compute_embedding_share(cells.sum_by_value(cells.weight), mean_label)
    information = float(compute_information(cells.weight.sum(), mean_label))
    return build_auxiliary(settings, shape, information, n_values, False, share_V)


def _plan(config: RunConfig, auxiliary: AuxiliaryNetwork | None, n_rows: int, keeps_best_epoch: bool) -> TrainingPlan:
    settings = config.calibrator
    features = () if auxiliary is None else auxiliary.columns
    return TrainingPlan(
        what="neucalib",
        epochs=settings.epochs if auxiliary is None else settings.auxiliary.epochs,  # as many as AdaCalib's network
        batch_size=settings.auxiliary.choose_batch_size(n_rows),
        learning_rate=settings.learning_rate if auxiliary is None else settings.auxiliary.learning_rate,
        seed=config.seed,
        columns=["label", "weight", "field_value_id", "uncalibrated_logit", *features],
        checkpoints=Path(config.run_dir) / "checkpoints" / "calibrator",
        settings={"calibrator": settings.model_dump(mode="json")},
        training=config.training,
        keeps="best_epoch" if keeps_best_epoch else "last_step",
        patience=settings.auxiliary.patience if keeps_best_epoch else None,
    )
