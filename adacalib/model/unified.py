"""The unified checkpoint: predictor and calibrator in one directory, one forward pass (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adacalib.cells.logit_cells import LOGIT_LIMIT
from adacalib.model.calibrator import Calibrator, restore_calibrator
from adacalib.model.checkpoint import Artifact, ArtifactError, load_artifact, publish_artifact
from adacalib.model.predictor import Predictor, build_predictor


class NonFiniteScore(RuntimeError):
    """The predictor gave a logit that is NaN or infinite, or an own logit is NaN."""


@dataclass(frozen=True)
class Scores:
    """What one forward pass gives, all of shape (B,); the calibrated ones are None without a calibrator."""

    uncalibrated_logit: Tensor
    calibrated_logit: Tensor | None
    calibrated_score: Tensor | None


class UnifiedModel(nn.Module):
    """Features (or an own logit) and field value id → un-calibrated and calibrated score.

    Args:
        predictor: None when the input brings its own logit.
        calibrator: None while only the predictor is trained.
        field: the calibrated field.
    """

    def __init__(self, predictor: Predictor | None, calibrator: Calibrator | None, field: str) -> None:
        super().__init__()
        self.predictor, self.calibrator, self.field = predictor, calibrator, field

    @property
    def columns(self) -> tuple[str, ...]:
        """Input columns of the forward pass."""
        names: list[str] = []
        if self.predictor is None:
            names.append("uncalibrated_logit")
        else:
            sizes = (self.predictor.encoder.n_numbers, len(self.predictor.encoder.category_counts))
            names += [n for n, s in zip(("predictor_features", "predictor_category_ids"), sizes, strict=True) if s]
        if self.calibrator is not None:
            names += ["field_value_id", *self.calibrator.columns]
        return tuple(names)

    def forward(self, columns: Mapping[str, Tensor]) -> Scores:
        """Scores a batch. Un-calibrated logits are clipped to those of [1e-7, 1 − 1e-7].

        Raises:
            NonFiniteScore: the predictor gave NaN or an infinite logit, or an own logit is NaN.
        """
        if self.predictor is None:
            logit_B = columns["uncalibrated_logit"]
            if torch.isnan(logit_B).any():
                raise NonFiniteScore("an own logit is NaN, which has no place among the bins; reject its row before")
        else:
            logit_B = self.predictor(columns.get("predictor_features"), columns.get("predictor_category_ids"))
            if not torch.isfinite(logit_B).all():
                raise NonFiniteScore(
                    "the predictor gave a logit that is not finite; train it again, look at its features"
                )
        logit_B = logit_B.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
        if self.calibrator is None:
            return Scores(logit_B, None, None)
        calibrated_B = self.calibrator(columns["field_value_id"].long(), logit_B, columns)
        if not torch.isfinite(calibrated_B).all():
            raise NonFiniteScore("the calibrator gave a logit that is not finite; look at the auxiliary features")
        return Scores(logit_B, calibrated_B, torch.sigmoid(calibrated_B))


def publish_unified(
    directory: Path, model: UnifiedModel, documents: Mapping[str, Any], records: Mapping[str, Any]
) -> str:
    """Writes predictor and calibrator as one artifact and returns its fingerprint.

    Args:
        documents: more JSON documents that are part of the checkpoint's identity.
        records: JSON documents that are not (loss curves, diagnostics).
    """
    parts = {"predictor": model.predictor, "calibrator": model.calibrator}
    tensors = {name: part.state_dict() for name, part in parts.items() if part is not None}
    unified: dict[str, Any] = {"field": model.field}
    if model.predictor is not None:
        unified["predictor"] = model.predictor.hyper_parameters
    if model.calibrator is not None:
        unified["calibrator"] = model.calibrator.describe()
    return publish_artifact(directory, tensors, {"unified": unified, **documents}, records)


def load_model(directory: str | Path, field: str) -> tuple[UnifiedModel, Artifact]:
    """Loads a unified checkpoint, or a predictor alone, in eval mode.

    Raises:
        ArtifactError: missing, damaged, something else, or made for another field.
    """
    artifact = load_artifact(directory)
    documents, tensors = artifact.documents, artifact.tensors
    try:
        if "unified" not in documents:
            model = UnifiedModel(build_predictor(documents["predictor"], tensors["predictor"]), None, field)
        else:
            unified = documents["unified"]
            predictor = build_predictor(unified["predictor"], tensors["predictor"]) if "predictor" in unified else None
            model = UnifiedModel(
                predictor, restore_calibrator(unified["calibrator"], tensors["calibrator"]), unified["field"]
            )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(
            f"{directory}: no predictor and no unified checkpoint ({error!r}); train it again"
        ) from error
    if model.field != field:
        raise ArtifactError(f"{directory}: calibrates field {model.field}, asked for {field}; train it for that field")
    model.eval()
    return model, artifact
