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
from adacalib.model.auxiliary import AuxiliaryNetwork, AuxiliaryShape, sum_cross_entropy
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.functions import interpolate
from adacalib.model.joint_training import JointTraining, build_joint_auxiliary, train_jointly
from adacalib.model.row_files import RowFiles
from adacalib.model.training_plan import StepLoss

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
    """Cross-entropy, the network's own penalty, and penalty_weight times the sum of all falls between neighbouring
    knots; see StepLoss."""

    def compute(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        loss, weight = sum_cross_entropy(module(columns), columns)
        falls = F.relu(-module.knots_J.diff()).sum()  # type: ignore[operator]
        if module.auxiliary is not None:
            loss = loss + module.auxiliary.compute_penalty(weight)  # type: ignore[union-attr,operator]
        return loss + penalty_weight * falls * weight, weight

    return compute


def compute_held_out_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy alone; see StepLoss."""
    return sum_cross_entropy(module(columns), columns)


def train_neucalib(
    config: RunConfig, cells: LogitCells, shape: AuxiliaryShape, rows: RowFiles, held_out: RowFiles, ranks: Ranks
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains NeuCalib; called on every rank. The epoch is chosen by held-out rows, as for AdaCalib's network.

    Args:
        cells: logit cells of train ∪ dev, for the bounds and the start.
        rows, held_out: as in `train_jointly`.

    Returns:
        The serving calibrator and what is to be told about its training (JSON).

    Raises:
        NoCellsError: there are no cells.
        StreamError: there are no rows to train on, or some did not arrive.
    """
    bounds = compute_bin_bounds(pool_values(cells), N_BINS)
    curve = fit_global_curve(cells)
    mean_label = compute_mean_label(cells.response.sum(), cells.weight.sum())
    weight_V = cells.sum_by_value(cells.weight)
    training = JointTraining(
        what="neucalib",
        build=lambda: NeuCalib(bounds, curve, build_joint_auxiliary(config, shape, weight_V, mean_label)),
        step_loss=make_step_loss(config.calibrator.choose_penalty_weight()),
        held_out_loss=compute_held_out_loss,
    )
    module, told = train_jointly(training, config, rows, held_out, ranks)
    return module.fold(cells.n_values), told | {"n_falling_bins": int((module.knots_J.diff() < 0).sum())}
