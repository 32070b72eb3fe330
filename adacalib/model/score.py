"""Arrow batches in, Arrow batches out: the same code scores with the predictor and with the unified checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from adacalib.model.checkpoint import Artifact, ArtifactError
from adacalib.model.unified import UnifiedModel, load_model

Scorer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class ScoringError(RuntimeError):
    """A batch cannot be scored."""


def build_scorer(directory: str | Path, field: str, columns: Sequence[str]) -> tuple[Scorer, Artifact]:
    """A function for mapInArrow that adds the model's scores to batches, and the model's artifact.

    The model is loaded once per Python worker, from the directory, so the directory must be reachable from there.

    Args:
        columns: columns of the batches returned, in order: scores, or columns of the input.

    Raises:
        ArtifactError: the checkpoint is missing, damaged or made for another field.
    """
    _, artifact = load_model(directory, field)
    path, fingerprint, names = str(Path(directory).resolve()), artifact.fingerprint, tuple(columns)

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = _load_once(path, field, fingerprint)
        for batch in batches:
            if batch.num_rows:  # a list column of no rows does not tell its length
                yield score_batch(model, batch, names)

    return score, artifact


def build_comparer(directories: Mapping[str, str | Path], field: str, columns: Sequence[str]) -> Scorer:
    """A function for mapInArrow that adds one column per checkpoint: its calibrated score of an un-calibrated logit.

    The predictor inside a checkpoint plays no part: all are asked about the same `uncalibrated_logit`.

    Args:
        directories: name of the column → unified checkpoint.
        columns: of the batches returned, in order: names of `directories`, or columns of the input.

    Raises:
        ArtifactError: a checkpoint is missing, damaged, made for another field, or holds no calibrator.
    """
    loaded = {name: load_model(directory, field) for name, directory in directories.items()}
    if without := [str(directories[name]) for name, (model, _) in loaded.items() if model.calibrator is None]:
        raise ArtifactError(f"{', '.join(without)}: no calibrator inside; run train_calibrator")
    paths = {name: (str(Path(directories[name]).resolve()), found.fingerprint) for name, (_, found) in loaded.items()}

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        calibrators = {
            name: UnifiedModel(None, _load_once(path, field, fingerprint).calibrator, field)
            for name, (path, fingerprint) in paths.items()
        }
        for batch in batches:
            if batch.num_rows:
                scores = {
                    name: score_batch(model, batch, ["calibrated_score"]).column(0)
                    for name, model in calibrators.items()
                }
                arrays = [scores[n] if n in scores else batch.column(_require(batch, n)) for n in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    return compare


@lru_cache(maxsize=32)
def _load_once(path: str, field: str, fingerprint: str) -> UnifiedModel:
    torch.set_num_threads(1)  # one worker per core already
    model, artifact = load_model(path, field)
    if artifact.fingerprint != fingerprint:
        raise ScoringError(f"{path}: the checkpoint was replaced while its scores were computed; run the stage again")
    return model


def score_batch(model: UnifiedModel, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Scores one batch.

    Args:
        batch: at least one row.
        columns: of the result; scores by name (uncalibrated_logit float32, calibrated_logit and calibrated_score
            float64), anything else is taken from the batch.

    Raises:
        ScoringError: a column is missing, a list column has lists of different lengths, or a field value id or parent
            id is unknown to the calibrator.
    """
    inputs = {name: _to_tensor(batch, name, model.field) for name in model.columns}
    if model.calibrator is not None:
        _check_ids(
            inputs["field_value_id"],
            model.calibrator.table.n_values,
            f"field value ids of {model.field}",
            "unseen",
            "field_values",
        )
        if model.calibrator.parent_level_P is not None:
            _check_ids(
                inputs["parent_id"], len(model.calibrator.parent_level_P), "parent ids", "none", "field_value_parents"
            )
    with torch.no_grad():
        scores = model(inputs)
    added: dict[str, Any] = {"uncalibrated_logit": scores.uncalibrated_logit.float()}
    if scores.calibrated_logit is not None:
        added |= {"calibrated_logit": scores.calibrated_logit, "calibrated_score": scores.calibrated_score}
    arrays = [pa.array(added[n].numpy()) if n in added else batch.column(_require(batch, n)) for n in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _to_tensor(batch: pa.RecordBatch, name: str, field: str) -> Tensor:
    array = batch.column(_require(batch, f"field_value_id_{field}" if name == "field_value_id" else name))
    if pa.types.is_list(array.type):
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        if np.any(lengths != lengths[0]):
            raise ScoringError(
                f"column {name}: lists of {lengths.min()} to {lengths.max()} numbers; all rows need the same number"
            )
        values = array.flatten().to_numpy(zero_copy_only=False)
        return torch.from_numpy(np.array(values).reshape(len(array), -1))
    return torch.from_numpy(np.array(array.to_numpy(zero_copy_only=False)))


def _require(batch: pa.RecordBatch, column: str) -> str:
    if column not in batch.schema.names:
        raise ScoringError(f"column {column} is missing; the batch has {', '.join(batch.schema.names)}")
    return column


def _check_ids(id_B: Tensor, n_known: int, what: str, zero: str, table: str) -> None:
    low, high = int(id_B.min()), int(id_B.max())
    if low < 0 or high >= n_known:
        raise ScoringError(
            f"{what} from {low} to {high}, but the checkpoint knows 0 ({zero}) to {n_known - 1}: "
            f"{table} is newer than the checkpoint; run train_calibrator again"
        )
