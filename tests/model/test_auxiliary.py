from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adacalib.model.auxiliary import FEATURE_COLUMNS, AuxiliaryNetwork, sum_cross_entropy

NUMBERS, CATEGORIES = FEATURE_COLUMNS


def make_network(seed: int = 0, n_values: int | None = 5, takes_logit: bool = True) -> AuxiliaryNetwork:
    torch.manual_seed(seed)
    return AuxiliaryNetwork(2, [3], 4, [6, 5], n_values, takes_logit)


def make_batch(n_rows: int = 40, seed: int = 1) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    columns = {
        NUMBERS: torch.from_numpy(rng.normal(size=(n_rows, 2)).astype(np.float32)),
        CATEGORIES: torch.from_numpy(rng.integers(0, 3, (n_rows, 1))),
        "label": torch.from_numpy(rng.integers(0, 2, n_rows)),
        "weight": torch.from_numpy(rng.uniform(0.5, 2, n_rows)),
    }
    return columns, torch.from_numpy(rng.integers(0, 5, n_rows)), torch.from_numpy(rng.normal(size=n_rows))


def train_a_little(network: AuxiliaryNetwork, steps: int = 20) -> None:
    columns, ids_B, logit_B = make_batch()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss, weight = sum_cross_entropy(logit_B + network(columns, ids_B, logit_B), columns)
        (loss / weight).backward()
        optimizer.step()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([None, 5]), st.booleans())
def test_starts_as_no_effect(seed: int, n_values: int | None, takes_logit: bool) -> None:
    columns, ids_B, logit_B = make_batch(seed=seed)
    term_B = make_network(seed, n_values, takes_logit)(columns, ids_B, logit_B)
    assert term_B.shape == (40,)
    assert not term_B.any()


def test_forward_equals_the_layers_written_out_in_numpy() -> None:
    network = make_network()
    train_a_little(network)
    columns, ids_B, logit_B = make_batch(seed=2)
    state = {name: tensor.numpy().astype(float) for name, tensor in network.state_dict().items()}
    x = np.column_stack(
        [
            columns[NUMBERS].numpy(),
            state["encoder.embeddings.0.weight"][columns[CATEGORIES].numpy()[:, 0]],
            logit_B.numpy(),
            state["value_embedding.weight"][ids_B.numpy()],
        ]
    )
    for layer in (0, 1):
        weight, bias = state[f"hidden_layers.{layer}.weight"], state[f"hidden_layers.{layer}.bias"]
        x = np.maximum(x @ weight.T + bias, 0)
    expected = x @ state["output_layer.weight"][0] + state["output_layer.bias"][0]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(network(columns, ids_B, logit_B).detach().numpy(), expected, atol=1e-5)


def test_the_embedding_of_unseen_values_is_and_stays_zero() -> None:
    network = make_network()
    assert network.value_embedding is not None
    before = network.value_embedding.weight.detach().clone()
    assert not before[0].any() and before[1:].any()
    train_a_little(network)
    assert not network.value_embedding.weight[0].any()
    assert (network.value_embedding.weight[1:] != before[1:]).all()


@pytest.mark.parametrize(
    ("n_numbers", "counts", "columns"),
    [(2, [3], (NUMBERS, CATEGORIES)), (2, [], (NUMBERS,)), (0, [3, 4], (CATEGORIES,))],
)
def test_columns_are_those_it_reads(n_numbers: int, counts: list[int], columns: tuple[str, ...]) -> None:
    network = AuxiliaryNetwork(n_numbers, counts, 4, [3], None, takes_logit=False)
    assert network.columns == columns
    batch = {NUMBERS: torch.zeros(7, 2), CATEGORIES: torch.zeros(7, len(counts), dtype=torch.int64)}
    nothing = torch.zeros(7)
    assert network({name: batch[name] for name in columns}, nothing.long(), nothing).shape == (7,)


def test_hyper_parameters_build_the_same_network() -> None:
    network = make_network()
    train_a_little(network)
    again = AuxiliaryNetwork(**network.hyper_parameters)
    again.load_state_dict(network.state_dict())
    batch = make_batch(seed=5)
    assert torch.equal(again(*batch), network(*batch))


def test_cross_entropy_by_hand() -> None:
    # p = 3/4 with label 1 and weight 2, p = 1/2 with label 0 and weight 3: -2 log 3/4 - 3 log 1/2
    loss, weight = sum_cross_entropy(
        torch.tensor([np.log(3), 0.0]), {"label": torch.tensor([1, 0]), "weight": torch.tensor([2.0, 3.0])}
    )
    assert loss.item() == pytest.approx(2 * np.log(4 / 3) + 3 * np.log(2))
    assert weight.item() == 5
    assert loss.dtype == torch.float64


def test_without_any_feature_it_is_refused() -> None:
    network = AuxiliaryNetwork(0, [], 4, [3], 5, takes_logit=True)
    with pytest.raises(ValueError, match="no features to encode; leave the network out"):
        network({}, torch.zeros(1).long(), torch.zeros(1))


def test_features_of_another_width_are_refused() -> None:
    columns, ids_B, logit_B = make_batch()
    with pytest.raises(ValueError, match=r"numbers: expected 2 per sample, found \(40, 3\)"):
        make_network()(columns | {NUMBERS: torch.zeros(40, 3)}, ids_B, logit_B)
