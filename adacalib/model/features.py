"""A sample's features as one vector: numbers as they are, categories through embeddings.

Shape suffixes: B samples, A numbers, G categories (columns), W width of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EMBEDDING_START = 0.1
"""Standard deviation that embeddings start with."""


class FeatureEncoder(nn.Module):
    """Numbers and embedded categories side by side.

    Args:
        n_numbers: numbers per sample, 0 or more.
        category_counts: per categorical column the number of ids, id 0 (unseen) included; empty without them.
        embedding_width: of every embedding.
        n_pieces: with them each number comes a second time, in pieces (`encode_in_pieces`); 0 for none.

    Attributes:
        width: length of the vector; 0 without any feature.

    Raises:
        ValueError: a count below 1.
    """

    piece_edges: Tensor

    def __init__(self, n_numbers: int, category_counts: Sequence[int], embedding_width: int, n_pieces: int = 0) -> None:
        super().__init__()
        if n_numbers < 0 or any(count < 1 for count in category_counts):
            raise ValueError(
                f"{n_numbers} numbers and categories of {list(category_counts)} ids: there is at least id 0 in each"
            )
        self.n_numbers = n_numbers
        self.category_counts = tuple(category_counts)
        self.embeddings = nn.ModuleList(nn.Embedding(count, embedding_width) for count in category_counts)
        with torch.no_grad():  # small to begin with: a category that is seldom met stays close to no effect
            for weight in self.embeddings.parameters():
                weight.mul_(EMBEDDING_START)
        self.register_buffer("piece_edges", make_piece_edges(n_pieces), persistent=False)
        self.width = n_numbers * (1 + n_pieces) + len(category_counts) * embedding_width

    def forward(self, numbers_BA: Tensor | None, category_ids_BG: Tensor | None) -> Tensor:
        """Encodes samples.

        Args:
            numbers_BA: float, standardised; ignored (None will do) without numbers.
            category_ids_BG: integer ids from 0, the unseen one; ignored (None will do) without categories.

        Returns:
            (B, W) float32.

        Raises:
            ValueError: an array is missing or of another width, or an id is out of range.
        """
        parts = []
        if self.n_numbers:
            parts.append(_of_width(numbers_BA, self.n_numbers, "numbers").float())
            if len(self.piece_edges):
                parts.append(encode_in_pieces(parts[0], self.piece_edges))
        if self.category_counts:
            ids_BG = _of_width(category_ids_BG, len(self.category_counts), "category ids")
            _check_range(ids_BG, self.category_counts)
            parts += [embed(ids_BG[:, column].long()) for column, embed in enumerate(self.embeddings)]
        if not parts:
            raise ValueError("there are no features to encode; leave the network out, or give it features")
        return torch.cat(parts, dim=1)


def make_piece_edges(n_pieces: int) -> Tensor:
    """Edges of the pieces, (n_pieces + 1,), which hold equal shares of a standard normal; none without pieces.

    The outer edges cut off a half share each.
    """
    if n_pieces == 0:
        return torch.empty(0)
    share = 0.5 / (n_pieces + 1)
    edges: Tensor = torch.special.ndtri(torch.linspace(share, 1 - share, n_pieces + 1, dtype=torch.float64))
    return edges.float()


def encode_in_pieces(numbers_BA: Tensor, edges: Tensor) -> Tensor:
    """How far each number has come in each piece: 0 below it, 1 above it, linear in between.

    A network learns a function with many bends from it in far fewer steps than from the number itself. Source:
    Gorishniy, Rubachev and Babenko, On Embeddings for Numerical Features in Tabular Deep Learning, 2022 (piecewise
    linear encoding), with the edges of a normal distribution instead of the data's own: the numbers are standardised.

    Args:
        numbers_BA: standardised.
        edges: (P + 1,), ascending; see `make_piece_edges`.

    Returns:
        (B, A · P), a number's pieces side by side.
    """
    lower, upper = edges[:-1], edges[1:]
    return ((numbers_BA[:, :, None] - lower) / (upper - lower)).clamp(0, 1).flatten(1)


def _of_width(array: Tensor | None, width: int, what: str) -> Tensor:
    if array is None or array.dim() != 2 or array.shape[1] != width:
        found = "none" if array is None else tuple(array.shape)
        raise ValueError(f"{what}: expected {width} per sample, found {found}; use the features the model was made for")
    return array


def _check_range(ids_BG: Tensor, counts: Sequence[int]) -> None:
    limits_G = torch.tensor(counts, device=ids_BG.device)
    outside_G = ((ids_BG < 0) | (ids_BG >= limits_G)).any(dim=0)
    if outside_G.any():
        column = int(outside_G.nonzero()[0, 0])
        ids_B = ids_BG[:, column]
        raise ValueError(
            f"categorical feature {column}: ids from {int(ids_B.min())} to {int(ids_B.max())}, expected 0 to "
            f"{counts[column] - 1}; encode the table with the dictionary that the model was made with (unseen: 0)"
        )
