"""Trains the predictor of a run: the samples of split train in, the predictor's artifact out."""

from __future__ import annotations

from typing import Any

import numpy as np

from adacalib.config import RunConfig
from adacalib.manifest import read_manifest, read_origin
from adacalib.model.checkpoint import publish_artifact
from adacalib.model.distributed import Ranks, join_ranks, sum_over_ranks, wait_for_all
from adacalib.model.predictor import Predictor, compute_log_loss
from adacalib.model.row_files import RowFiles, StreamError, open_rows
from adacalib.model.stream import stream_batches
from adacalib.model.training import TrainingPlan, train


def train_predictor(config: RunConfig) -> None:
    """Trains the predictor on split train, with the loss on split dev after each epoch; keeps the last epoch.

    To be called on every rank; rank 0 publishes.

    Raises:
        StreamError: the samples are missing, incomplete or without rows in split train.
        ValueError: split train has rows of one label only, or the run brings its own scores.
    """
    table = config.run_dir / "tables" / "samples"
    with join_ranks(config.training, config.seed) as ranks:  # first of all: it passes on what a rank raises
        if config.has_own_scores:
            raise ValueError(f"{config.name}: the input brings its own scores (input.score): there is no predictor")
        origin = read_origin(config, ("samples",))
        counts = _read_counts(read_manifest(table), str(table))
        rows = open_rows(table, "split=train")
        plan = _plan(config, counts)
        predictor = Predictor(
            **counts,
            hidden=config.predictor.hidden,
            embedding_width=config.predictor.embedding_width,
            mean_label=_mean_label(rows, config, ranks),
        ).to(ranks.device)
        result = train(predictor, compute_log_loss, rows, plan, ranks, held_out=open_rows(table, "split=dev"))
        if ranks.is_first:
            publish_artifact(
                config.run_dir / "predictor",
                {"predictor": predictor.state_dict()},
                {"predictor": predictor.hyper_parameters, "origin": origin},
                records={"loss_curve": result.loss_curve()},
            )
        wait_for_all(ranks)


def _read_counts(manifest: dict[str, Any], table: str) -> dict[str, Any]:
    try:
        return {
            "n_numbers": int(manifest["n_predictor_features"]),
            "category_counts": [int(count) for count in manifest["predictor_category_counts"]],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise StreamError(
            f"{table}: its manifest does not say how many predictor features there are ({error!r}); "
            "run prepare_samples again"
        ) from error


def _plan(config: RunConfig, counts: dict[str, Any]) -> TrainingPlan:
    features = [("predictor_features", counts["n_numbers"]), ("predictor_category_ids", counts["category_counts"])]
    return TrainingPlan(
        what="predictor",
        epochs=config.predictor.epochs,
        batch_size=config.predictor.batch_size,
        learning_rate=config.predictor.learning_rate,
        seed=config.seed,
        columns=["label", "weight", *(name for name, size in features if size)],
        checkpoints=config.run_dir / "checkpoints" / "predictor",
        settings={"predictor": config.predictor.model_dump(mode="json"), **counts},
        training=config.training,
    )


def _mean_label(rows: RowFiles, config: RunConfig, ranks: Ranks) -> float:
    """Weighted mean label, in one pass over two columns."""
    sums = np.zeros(2)
    for batch in stream_batches(rows, ["label", "weight"], 65536, rank=ranks.rank, world_size=ranks.world_size):
        weight = batch.columns["weight"].astype(np.float64)
        sums += (weight @ batch.columns["label"].astype(np.float64), weight.sum())
    responses, weight_sum = sum_over_ranks(ranks, sums)
    if not 0 < responses < weight_sum:
        raise ValueError(
            f"{rows.name}: labels add up to {responses:g} at weight {weight_sum:g}; the predictor needs rows of both "
            "labels: check input.label and the split"
        )
    return float(responses / weight_sum)
