"""Paper mode: trains the calibrator on train ∪ dev and folds it into its serving form."""

from __future__ import annotations

from typing import Any

import numpy as np

from adacalib.cells.candidate_bins import CandidateBins
from adacalib.cells.logit_cells import compute_mean_label
from adacalib.config import RunConfig
from adacalib.model.auxiliary import AuxiliaryShape
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.joint_training import JointTraining, build_joint_auxiliary, train_jointly
from adacalib.model.paper import PaperCalibrator, compute_held_out_loss, compute_paper_loss
from adacalib.model.row_files import RowFiles


def train_paper(
    config: RunConfig, bins: CandidateBins, shape: AuxiliaryShape, rows: RowFiles, held_out: RowFiles, ranks: Ranks
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains; called on every rank. The epoch is chosen by held-out rows, as for AdaCalib's network and NeuCalib.

    Args:
        rows, held_out: as in `train_jointly`.

    Returns:
        The serving calibrator and what is to be told about its training (JSON).
    """
    weight_V = bins.weight_VCK[:, 0].sum(axis=1)
    mean_label = compute_mean_label(bins.response_VCK[0, 0].sum(), weight_V[0])  # row 0: all field values
    own_weight_V = np.where(bins.is_unseen_V, 0.0, weight_V)

    def build() -> PaperCalibrator:
        auxiliary = build_joint_auxiliary(config, shape, own_weight_V, mean_label)
        return PaperCalibrator(bins, weight_V, config.calibrator, auxiliary)

    training = JointTraining(
        what="paper",
        build=build,
        step_loss=compute_paper_loss,
        held_out_loss=compute_held_out_loss,
        on_epoch=PaperCalibrator.set_epoch,
        settings=list(bins.candidates),
    )
    module, told = train_jointly(training, config, rows, held_out, ranks)
    calibrator, chosen_V = module.fold()
    return calibrator, told | {"chosen_candidates": [bins.candidates[i] for i in chosen_V.tolist()]}
