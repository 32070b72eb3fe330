"""Features as a network takes them: numbers, numbers in pieces, embedded categories."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from adacalib.model.features import EMBEDDING_START, FeatureEncoder, encode_in_pieces, make_piece_edges


def test_features_by_hand() -> None:
    # One number, one category of 2 ids with embeddings (1, 2) and (3, 4): number first, then the id's embedding.
    encoder = FeatureEncoder(1, [2], embedding_width=2)
    encoder.embeddings[0].weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    encoded = encoder(torch.tensor([[0.5], [-0.5]]), torch.tensor([[1], [0]], dtype=torch.int32))
    assert encoded.tolist() == [[0.5, 3, 4], [-0.5, 1, 2]]
    assert encoder.width == 3


@settings(max_examples=20, deadline=None)
@given(
    n_numbers=st.integers(0, 3),
    counts=st.lists(st.integers(1, 4), max_size=3),
    n_rows=st.integers(0, 4),
    n_pieces=st.integers(0, 3),
)
def test_any_mix_of_features_works(n_numbers: int, counts: list[int], n_rows: int, n_pieces: int) -> None:
    encoder = FeatureEncoder(n_numbers, counts, embedding_width=2, n_pieces=n_pieces)
    assert encoder.width == n_numbers * (1 + n_pieces) + 2 * len(counts)
    if encoder.width == 0:
        with pytest.raises(ValueError, match="there are no features to encode"):
            encoder(None, None)
        return
    numbers = torch.randn(n_rows, n_numbers) if n_numbers else None
    ids = torch.stack([torch.randint(count, (n_rows,)) for count in counts], dim=1) if counts else None
    assert encoder(numbers, ids).shape == (n_rows, encoder.width)


def test_embeddings_start_small() -> None:
    torch.manual_seed(4)
    encoder = FeatureEncoder(1, [400, 900], 16)
    for embedding in encoder.embeddings:
        weights = embedding.weight.detach()
        assert weights.std().item() == pytest.approx(EMBEDDING_START, rel=0.05)
        assert abs(weights.mean().item()) < 0.01
        assert embedding.weight.requires_grad
    assert EMBEDDING_START == 0.1


def test_ids_out_of_range_and_arrays_of_another_width() -> None:
    encoder = FeatureEncoder(1, [3, 2], embedding_width=2)
    numbers = torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"categorical feature 1: ids from 0 to 2, expected 0 to 1; encode the table"):
        encoder(numbers, torch.tensor([[2, 0], [0, 2]]))
    with pytest.raises(ValueError, match="categorical feature 0: ids from -1 to 0"):
        encoder(numbers, torch.tensor([[-1, 0], [0, 0]]))
    with pytest.raises(ValueError, match=r"category ids: expected 2 per sample, found \(2, 1\)"):
        encoder(numbers, torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="numbers: expected 1 per sample, found none"):
        encoder(None, torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="there is at least id 0 in each"):
        FeatureEncoder(1, [0], embedding_width=2)


def test_pieces_by_hand() -> None:
    # Two pieces, from -1 to 0 and from 0 to 2: a number fills the pieces from the left.
    edges = torch.tensor([-1.0, 0.0, 2.0])
    numbers = torch.tensor([[-3.0, 2.5], [-0.25, 0.5]])
    assert encode_in_pieces(numbers, edges).tolist() == [[0, 0, 1, 1], [0.75, 0, 1, 0.25]]
    # quarters of a normal's inner half: one piece from the first to the third quartile
    assert make_piece_edges(1).tolist() == pytest.approx([norm.ppf(0.25), norm.ppf(0.75)])
    assert make_piece_edges(2).tolist() == pytest.approx(norm.ppf([1 / 6, 1 / 2, 5 / 6]).tolist(), abs=1e-7)
    assert make_piece_edges(0).tolist() == []


@settings(max_examples=30, deadline=None)
@given(n_pieces=st.integers(1, 40), numbers=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=20))
def test_pieces_are_those_that_numpy_interpolates(n_pieces: int, numbers: list[float]) -> None:
    edges = make_piece_edges(n_pieces)
    assert len(edges) == n_pieces + 1 and bool((edges.diff() > 0).all())
    pieces = encode_in_pieces(torch.tensor(numbers)[:, None], edges).numpy()
    # how many pieces a number has come through
    along = np.interp(numbers, edges.numpy(), np.arange(n_pieces + 1))
    np.testing.assert_allclose(pieces.sum(axis=1), along, atol=1e-4)
    np.testing.assert_allclose(pieces, np.clip(along[:, None] - np.arange(n_pieces), 0, 1), atol=1e-4)


def test_a_network_of_one_layer_follows_bends_only_in_pieces() -> None:
    # least squares on |x|: a line is no help, pieces are enough
    x = torch.linspace(-1, 1, 101)[:, None]
    y = x.abs()

    def fit(n_pieces: int) -> float:
        design = torch.cat([FeatureEncoder(1, [], 2, n_pieces)(x, None), torch.ones(101, 1)], dim=1).double()
        solution = torch.linalg.lstsq(design, y.double(), driver="gelsd").solution
        return float((design @ solution - y).square().mean())

    assert fit(0) > 0.05 > 1e-4 > fit(16)


def test_encoder_puts_the_pieces_behind_the_numbers() -> None:
    encoder = FeatureEncoder(2, [2], embedding_width=1, n_pieces=2)
    numbers = torch.tensor([[0.25, -9.0]])
    encoded = encoder(numbers, torch.tensor([[1]]))
    assert encoded.shape == (1, encoder.width) == (1, 7)
    assert torch.equal(encoded[:, :2], numbers)
    assert torch.equal(encoded[:, 2:6], encode_in_pieces(numbers, encoder.piece_edges))
    assert "piece_edges" not in encoder.state_dict()  # made anew from their number
