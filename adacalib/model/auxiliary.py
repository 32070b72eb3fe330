"""The auxiliary network: what a sample's features add to its field value's function.

Shape letters: B samples in the batch, A numeric features, G categorical features, V field values, E embedding width,
W width of the network's input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adacalib.cells.logit_cells import Floats
from adacalib.config import AuxiliaryConfig
from adacalib.model.features import EMBEDDING_START, FeatureEncoder

LOGIT_SCALE = 1.5
"""Log-odds that one unit of the network's calibrated-logit input stands for."""

EMBEDDING_EVIDENCE = 50.0
"""Information on a field value's level, Σp(1 − p), at which its embedding counts half."""

CROSS_RANK = 256
"""The cross layer's matrix is of this rank where the input is wider than twice as much."""

FEATURE_COLUMNS = ("auxiliary_features", "auxiliary_category_ids")


@dataclass(frozen=True)
class AuxiliaryShape:
    """Sizes of the auxiliary network's feature columns, from the samples' manifest."""

    n_numbers: int
    category_counts: tuple[int, ...]


class AuxiliaryNetwork(nn.Module):
    """Cross layer and fully-connected layers on features, calibrated logit where wanted, and field value's embedding.

    The cross layer gives the others products of inputs (x + x·(Wx + b), element by element; Wang et al., DCN V2, WWW
    2021), so that what two features say together, which most predictors miss, need not be pieced together by them.

    Its last layer starts at 0, so it starts as no effect. The embedding of id 0, unseen values, is and stays 0. Adam
    moves a rare value's embedding as far as a frequent one's, on a handful of labels; so each embedding is multiplied
    by a share between 0 and 1, what the value's samples can say. And in training each has a normal prior, the one that
    it starts from (`compute_penalty`): where the field value's function says it all, nothing is left of it.

    Args:
        n_numbers: numeric features per sample.
        category_counts: per categorical feature the number of ids, id 0 included.
        embedding_width: of categories and of the field value.
        hidden: widths of the hidden layers.
        n_values: field values with an embedding (id 0 included), or None for no embedding.
        takes_logit: whether the calibrated logit is an input (robust mode).
        embedding_share_V: what each value's embedding is multiplied by, in [0, 1]; 1 by default.
        n_pieces: numbers come in so many pieces besides (`features.encode_in_pieces`); 0 for none.
        fit_weight: sum of the weights of the rows that it is trained on; None where it is not trained any more.
    """

    embedding_share_V: Tensor

    def __init__(
        self,
        n_numbers: int,
        category_counts: Sequence[int],
        embedding_width: int,
        hidden: Sequence[int],
        n_values: int | None,
        takes_logit: bool,
        embedding_share_V: Floats | None = None,
        n_pieces: int = 0,
        fit_weight: float | None = None,
    ) -> None:
        super().__init__()
        self.fit_weight = fit_weight
        self.hyper_parameters: dict[str, Any] = {
            "n_numbers": n_numbers,
            "category_counts": list(category_counts),
            "embedding_width": embedding_width,
            "hidden": list(hidden),
            "n_values": n_values,
            "takes_logit": takes_logit,
            "n_pieces": n_pieces,
        }
        self.takes_logit = takes_logit
        self.encoder = FeatureEncoder(n_numbers, category_counts, embedding_width, n_pieces)
        self.value_embedding = None
        if n_values is not None:
            self.value_embedding = nn.Embedding(n_values, embedding_width, padding_idx=0)
            with torch.no_grad():
                self.value_embedding.weight.mul_(EMBEDDING_START)
            share_V = np.ones(n_values) if embedding_share_V is None else embedding_share_V
            self.register_buffer("embedding_share_V", torch.from_numpy(share_V.astype(np.float32)))
        width = self.encoder.width + int(takes_logit) + (embedding_width if n_values is not None else 0)
        self.cross_layer = _make_cross_layer(width)
        widths = (width, *hidden)
        self.hidden_layers = nn.ModuleList(nn.Linear(n_in, n_out) for n_in, n_out in pairwise(widths))
        self.output_layer = nn.Linear(widths[-1], 1)
        nn.init.zeros_(self.output_layer.weight)
        nn.init.zeros_(self.output_layer.bias)

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature columns that the network reads."""
        sizes = (self.encoder.n_numbers, len(self.encoder.category_counts))
        return tuple(name for name, size in zip(FEATURE_COLUMNS, sizes, strict=True) if size)

    def forward(self, columns: Mapping[str, Tensor], field_value_id_B: Tensor, centered_logit_B: Tensor) -> Tensor:
        """The auxiliary term (B,), log-odds.

        Args:
            columns: the feature columns of the batch.
            field_value_id_B: dense ids; used with an embedding only.
            centered_logit_B: (calibrated logit − logit of the mean label) / 1.5; used with takes_logit only.
        """
        parts = [self.encoder(columns.get(FEATURE_COLUMNS[0]), columns.get(FEATURE_COLUMNS[1]))]
        if self.takes_logit:
            parts.append(centered_logit_B[:, None].float())
        if self.value_embedding is not None:
            share_B = self.embedding_share_V[field_value_id_B]
            parts.append(self.value_embedding(field_value_id_B) * share_B[:, None])
        input_BW = torch.cat(parts, dim=1)
        activation = input_BW * self.cross_layer(input_BW) + input_BW
        for layer in self.hidden_layers:
            activation = F.relu(layer(activation), inplace=True)  # nothing else reads the layer's output
        term_B: Tensor = self.output_layer(activation)[:, 0]
        return term_B

    def compute_penalty(self, weight: Tensor) -> Tensor:
        """−log of the prior N(0, EMBEDDING_START²) of the field values' embeddings, the part of rows of this weight.

        Added to the rows' summed loss it makes the mean loss, over all rows, that of the most probable embeddings. A
        value's embedding is paid for once, however many rows it has.

        Args:
            weight: sum of the weights of the rows at hand.
        """
        if self.value_embedding is None or self.fit_weight is None:
            return torch.zeros_like(weight)
        squares = self.value_embedding.weight.double().square().sum()
        return weight / self.fit_weight * squares / (2 * EMBEDDING_START**2)


def _make_cross_layer(width: int) -> nn.Module:
    """An affine map of the input onto its own width, as a product of two where a whole matrix would be too large."""
    if width <= 2 * CROSS_RANK:
        return nn.Linear(width, width)
    return nn.Sequential(nn.Linear(width, CROSS_RANK, bias=False), nn.Linear(CROSS_RANK, width))


def build_auxiliary(
    settings: AuxiliaryConfig, shape: AuxiliaryShape, weight_V: Floats, mean_label: float, takes_logit: bool
) -> AuxiliaryNetwork:
    """The network of a run's configuration, at its start; how large it is, what the samples hold decides.

    Args:
        weight_V: sum of sample weights of each dense id, 0 for id 0.
        mean_label: ȳ of all samples, in (0, 1).
        takes_logit: see `AuxiliaryNetwork`.
    """
    fit_weight = float(weight_V.sum())
    information = float(compute_information(np.array(fit_weight), mean_label))
    return AuxiliaryNetwork(
        shape.n_numbers,
        shape.category_counts,
        settings.embedding_width,
        settings.choose_hidden(information),
        len(weight_V) if settings.field_value_embedding else None,
        takes_logit,
        compute_embedding_share(weight_V, mean_label),
        settings.choose_numeric_pieces(information),
        fit_weight,
    )


def compute_information(weight: Floats, mean_label: float) -> Floats:
    """n·ȳ·(1 − ȳ), the information of n samples on their level: Σp(1 − p).

    Args:
        weight: sums of sample weights, n; of any shape.
        mean_label: ȳ, in (0, 1).
    """
    return weight * mean_label * (1 - mean_label)


def compute_embedding_share(weight_V: Floats, mean_label: float) -> Floats:
    """I/(I + EMBEDDING_EVIDENCE) per field value, I its information (`compute_information`).

    Args:
        weight_V: sum of sample weights of each dense id, 0 for id 0.
        mean_label: ȳ, in (0, 1).
    """
    information_V = compute_information(weight_V, mean_label)
    return information_V / (information_V + EMBEDDING_EVIDENCE)


def sum_cross_entropy(logit_B: Tensor, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Weighted sum of cross-entropies of calibrated log-odds, and the sum of weights; float64."""
    weight_B = columns["weight"].double()
    label_B = columns["label"].double()
    loss_B = F.binary_cross_entropy_with_logits(logit_B.double(), label_B, reduction="none")
    return (weight_B * loss_B).sum(), weight_B.sum()
