"""Paper mode: trains the calibrator on all rows of train ∪ dev and folds it into its serving form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adacalib.cells.candidate_bins import CandidateBins
from adacalib.config import RunConfig
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks
from adacalib.model.paper import PaperCalibrator, compute_mixture_loss, compute_paper_loss
from adacalib.model.robust import AuxiliaryShape
from adacalib.model.row_files import RowFiles
from adacalib.model.training import TrainingPlan, train


def train_paper(
    config: RunConfig,
    bins: CandidateBins,
    shape: AuxiliaryShape,
    rows: RowFiles,
    held_out: RowFiles,
    ranks: Ranks,
) -> tuple[Calibrator, dict[str, Any]]:
    """Trains for the configured epochs and keeps the last one, as the paper does; called on every rank.

    The held-out rows are only looked at: their loss is in the curve and decides nothing.

    Returns:
        The serving calibrator and what is to be told about its training (JSON).
    """
    settings = config.calibrator
    weight_V = bins.weight_VCK[:, 0].sum(axis=1)
    auxiliary = None
    if config.has_auxiliary_network:
        auxiliary = AuxiliaryNetwork(
            shape.n_numbers,
            shape.category_counts,
            settings.auxiliary.embedding_width,
            settings.auxiliary.hidden,
            n_values=None if settings.auxiliary.field_value_embedding == "off" else len(weight_V),
            takes_logit=False,
        )
    module = PaperCalibrator(bins, weight_V, settings, auxiliary).to(ranks.device)
    plan = TrainingPlan(
        what="paper calibrator",
        epochs=settings.epochs,
        batch_size=settings.auxiliary.batch_size,
        learning_rate=settings.auxiliary.learning_rate,
        seed=config.seed,
        columns=[
            "label",
            "weight",
            "field_value_id",
            "uncalibrated_logit",
            *(auxiliary.columns if auxiliary is not None else ()),
        ],
        checkpoints=Path(config.run_dir) / "checkpoints" / "calibrator",
        settings={"calibrator": settings.model_dump(mode="json"), "candidates": list(bins.candidates)},
        training=config.training,
    )
    result = train(
        module,
        compute_paper_loss,
        rows,
        plan,
        ranks,
        held_out=held_out,
        held_out_loss=compute_mixture_loss,
        on_epoch=module.set_epoch,
    )
    calibrator, chosen_V = module.cpu().fold()
    return calibrator, {
        "chosen_epoch": result.chosen_epoch,
        "loss_curves": {"paper": result.loss_curve()},
        "chosen_candidates": [bins.candidates[i] for i in chosen_V.tolist()],
    }
