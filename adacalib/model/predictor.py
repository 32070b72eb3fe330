"""The un-calibrated model of the paper: four fully-connected layers on numbers and embeddings.

Shape suffixes: B samples, A numbers, G categories (columns).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from adacalib.model.checkpoint import ArtifactError, load_artifact
from adacalib.model.features import FeatureEncoder


class Predictor(nn.Module):
    """Features of a sample → its un-calibrated logit.

    Args:
        n_numbers: numbers per sample.
        category_counts: per categorical column the number of ids, id 0 (unseen) included.
        hidden: widths of the three hidden layers; the fourth layer gives the logit.
        embedding_width: of every categorical column's embedding.
        mean_label: weighted mean label of the training rows, in (0, 1); the output's bias starts at its logit, so
            that training starts at the right level. Without it at PyTorch's default.

    Raises:
        ValueError: there is no feature at all, or `mean_label` is not inside (0, 1).
    """

    def __init__(
        self,
        n_numbers: int,
        category_counts: Sequence[int],
        hidden: Sequence[int] = (128, 64, 32),
        embedding_width: int = 8,
        mean_label: float | None = None,
    ) -> None:
        super().__init__()
        self.hyper_parameters: dict[str, Any] = {
            "n_numbers": n_numbers,
            "category_counts": list(category_counts),
            "hidden": list(hidden),
            "embedding_width": embedding_width,
        }
        self.encoder = FeatureEncoder(n_numbers, category_counts, embedding_width)
        if self.encoder.width == 0:
            raise ValueError("the predictor has no features; name some under `features`, or bring your own scores")
        widths = (self.encoder.width, *hidden)
        layers = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise(widths)]
        self.hidden_layers = nn.ModuleList(layers)
        self.output_layer = nn.Linear(widths[-1], 1)
        if mean_label is not None:
            if not 0 < mean_label < 1:
                raise ValueError(f"mean label {mean_label:g}: a predictor needs rows of both labels to learn from")
            nn.init.constant_(self.output_layer.bias, math.log(mean_label) - math.log1p(-mean_label))

    def forward(self, numbers_BA: Tensor | None, category_ids_BG: Tensor | None) -> Tensor:
        """Un-calibrated logits (B,) in log-odds; arguments as for `FeatureEncoder`."""
        activation = self.encoder(numbers_BA, category_ids_BG)
        for layer in self.hidden_layers:
            activation = F.relu(layer(activation))
        logit_B: Tensor = self.output_layer(activation).squeeze(1)
        return logit_B


def compute_log_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Weighted sum of the rows' cross-entropies, and the sum of their weights.

    Args:
        module: a `Predictor`.
        columns: label (0 or 1), weight, and predictor_features or predictor_category_ids, or both.
    """
    logit_B = module(columns.get("predictor_features"), columns.get("predictor_category_ids"))
    loss_B = F.binary_cross_entropy_with_logits(logit_B, columns["label"].float(), reduction="none")
    weight_B = columns["weight"]
    return (weight_B * loss_B).sum(), weight_B.sum()


def load_predictor(directory: str | Path) -> Predictor:
    """The predictor of an artifact, in eval mode.

    Raises:
        ArtifactError: the artifact is missing or damaged, or holds something else.
    """
    artifact = load_artifact(directory)
    try:
        return build_predictor(artifact.documents["predictor"], artifact.tensors["predictor"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise ArtifactError(f"{directory}: not a predictor ({error}); run train_predictor again") from error


def build_predictor(hyper_parameters: Mapping[str, Any], state: Mapping[str, Tensor]) -> Predictor:
    """The predictor of these hyper-parameters (as in `Predictor.hyper_parameters`) and this state, in eval mode."""
    predictor = Predictor(**hyper_parameters)
    predictor.load_state_dict(state)
    predictor.eval()
    return predictor
