"""Paper mode: trains the calibrator on all rows of train ∪ dev and folds it into its serving form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adacalib.cells.candidate_bins import CandidateBins
from adacalib.config import RunConfig
from adacalib.model.auxiliary import AuxiliaryShape, build_auxiliary, compute_information
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.paper import PaperCalibrator, compute_paper_loss
from adacalib.model.row_files import RowFiles
from adacalib.model.training import TrainingPlan, train


def train_paper(
    config: RunConfig, bins: CandidateBins, shape: AuxiliaryShape, rows: RowFiles, ranks: Ranks
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains for the configured epochs and keeps the last one, as the paper does; called on every rank.

    Args:
        rows: all rows of train ∪ dev; the paper holds none out.

    Returns:
        The serving calibrator and what is to be told about its training (JSON).
    """
    auxiliary = None
    if config.has_auxiliary_network:
        settings = config.calibrator.auxiliary
        n_values = None if settings.field_value_embedding == "off" else len(bins.weight_VCK)
        weight, response = (sums[0, 0].sum() for sums in (bins.weight_VCK, bins.response_VCK))  # the global row
        information = float(compute_information(weight, response / weight))
        auxiliary = build_auxiliary(settings, shape, information, n_values, takes_logit=False)
    weight_V = bins.weight_VCK[:, 0].sum(axis=1)
    module = PaperCalibrator(bins, weight_V, config.calibrator, auxiliary).to(ranks.device)
    plan = _plan(config, bins, rows.rows, () if auxiliary is None else auxiliary.columns)
    result = train(module, compute_paper_loss, rows, plan, ranks, on_epoch=module.set_epoch)
    calibrator, chosen_V = module.cpu().fold()
    return calibrator, {
        "chosen_epoch": result.chosen_epoch,
        "loss_curves": {"paper": result.loss_curve()},
        "chosen_candidates": [bins.candidates[i] for i in chosen_V.tolist()],
    }


def _plan(config: RunConfig, bins: CandidateBins, n_rows: int, features: Sequence[str]) -> TrainingPlan:
    settings = config.calibrator
    return TrainingPlan(
        what="paper calibrator",
        epochs=settings.epochs,
        batch_size=settings.auxiliary.choose_batch_size(n_rows),
        learning_rate=settings.learning_rate,
        seed=config.seed,
        columns=["label", "weight", "field_value_id", "uncalibrated_logit", *features],
        checkpoints=Path(config.run_dir) / "checkpoints" / "calibrator",
        settings={"calibrator": settings.model_dump(mode="json"), "candidates": list(bins.candidates)},
        training=config.training,
    )
