from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adacalib.config import AuxiliaryConfig
from adacalib.model.auxiliary import (
    CROSS_RANK,
    EMBEDDING_EVIDENCE,
    FEATURE_COLUMNS,
    AuxiliaryNetwork,
    AuxiliaryShape,
    build_auxiliary,
    compute_embedding_share,
    compute_information,
    sum_cross_entropy,
)
from adacalib.model.checkpoint import load_artifact, publish_artifact

NUMBERS, CATEGORIES = FEATURE_COLUMNS
SHARE = np.array([0, 0.5, 1, 0, 0.25])


def make_network(
    seed: int = 0, n_values: int | None = 5, takes_logit: bool = True, share_V: np.ndarray | None = None
) -> AuxiliaryNetwork:
    torch.manual_seed(seed)
    return AuxiliaryNetwork(2, [3], 4, [6, 5], n_values, takes_logit, share_V)


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


@pytest.mark.parametrize("share_V", [None, SHARE])
def test_forward_equals_the_layers_written_out_in_numpy(share_V: np.ndarray | None) -> None:
    network = make_network(share_V=share_V)
    train_a_little(network)
    columns, ids_B, logit_B = make_batch(seed=2)
    state = {name: tensor.numpy().astype(float) for name, tensor in network.state_dict().items()}
    x = np.column_stack(
        [
            columns[NUMBERS].numpy(),
            state["encoder.embeddings.0.weight"][columns[CATEGORIES].numpy()[:, 0]],
            logit_B.numpy(),
            (np.ones(5) if share_V is None else share_V)[ids_B.numpy(), None]
            * state["value_embedding.weight"][ids_B.numpy()],
        ]
    )
    x = x + x * (x @ state["cross_layer.weight"].T + state["cross_layer.bias"])
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


@pytest.mark.parametrize("n_pieces", [0, 3])
def test_hyper_parameters_build_the_same_network(n_pieces: int) -> None:
    torch.manual_seed(0)
    network = AuxiliaryNetwork(2, [3], 4, [6, 5], 5, True, SHARE, n_pieces)
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


def test_embedding_share_by_hand() -> None:
    # a mean label of 1/2: I = n/4, so 200 samples are worth 50 and count half; 600 are worth 150: 150/200; of 1/10:
    # I = .09 n, 1000 samples are worth 90: 90/140. Without samples, as id 0, nothing.
    assert EMBEDDING_EVIDENCE == 50
    np.testing.assert_allclose(compute_embedding_share(np.array([0, 200, 600.0]), 0.5), [0, 0.5, 0.75])
    np.testing.assert_allclose(compute_embedding_share(np.array([0, 1000.0]), 0.1), [0, 90 / 140])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=20), st.floats(1e-9, 1 - 1e-9))
def test_embedding_share_is_a_share_and_grows_with_the_samples(weights: list[float], mean_label: float) -> None:
    share = compute_embedding_share(np.sort(np.array(weights)), mean_label)
    assert np.all((share >= 0) & (share <= 1)) and np.all(np.diff(share) >= 0)
    # a label and its opposite say as much
    np.testing.assert_allclose(share, compute_embedding_share(np.sort(np.array(weights)), 1 - mean_label), rtol=1e-6)


def test_the_output_of_a_value_without_share_does_not_depend_on_its_embedding() -> None:
    network = make_network(share_V=SHARE)
    assert network.value_embedding is not None
    before = network.value_embedding.weight.detach().clone()
    train_a_little(network)
    columns, ids_B, logit_B = make_batch(200, seed=3)
    told = network(columns, ids_B, logit_B).detach()
    with torch.no_grad():
        network.value_embedding.weight += 3.0
    moved_B = (network(columns, ids_B, logit_B).detach() != told).numpy()
    has_share_B = SHARE[ids_B.numpy()] > 0
    assert has_share_B.any() and not has_share_B.all()
    assert not moved_B[~has_share_B].any()
    # relu may be shut for one row or another
    assert moved_B[has_share_B].mean() > 0.9
    # nor is it moved by the labels of such a value
    with torch.no_grad():
        network.value_embedding.weight -= 3.0
    change_V = (network.value_embedding.weight.detach() - before).abs().amax(dim=1)
    assert change_V[3] < 1e-6 < 1e-3 < change_V[[1, 2, 4]].min()


def test_without_embedding_there_is_no_share() -> None:
    network = make_network(n_values=None, share_V=SHARE)
    assert network.value_embedding is None
    assert not [name for name in network.state_dict() if "embedding_share" in name]


def test_information_by_hand() -> None:
    # 1,000 samples at a rate of 1/10: 1000 · .1 · .9; a label and its opposite say as much
    assert compute_information(np.array(1000.0), 0.1) == pytest.approx(90)
    assert compute_information(np.array(1000.0), 0.9) == pytest.approx(90)


def test_build_auxiliary_is_as_large_as_the_samples_bear() -> None:
    # at a rate of one half 400,000 and 4 million samples hold 100,000 and 1,000,000
    few, many = (
        build_auxiliary(AuxiliaryConfig(), AuxiliaryShape(2, (3,)), np.array([0.0, n]), 0.5, takes_logit=True)
        for n in (4e5, 4e6)
    )
    assert (few.hyper_parameters["hidden"], few.hyper_parameters["n_pieces"]) == ([64, 64], 0)
    assert (many.hyper_parameters["hidden"], many.hyper_parameters["n_pieces"]) == ([128, 64], 16)
    assert few.encoder.width == 2 + 16 and many.encoder.width == 2 * 17 + 16


def test_build_auxiliary_weighs_embeddings_by_their_evidence() -> None:
    settings_of_run = AuxiliaryConfig(hidden=(6, 5), embedding_width=4)
    weight_V = np.array([0.0, 200.0, 1800.0])
    network = build_auxiliary(settings_of_run, AuxiliaryShape(2, (3,)), weight_V, 0.5, takes_logit=True)
    # information 50 and 450 against 50
    np.testing.assert_allclose(network.embedding_share_V.numpy(), [0, 0.5, 0.9], rtol=1e-6)
    assert network.fit_weight == 2000
    off = AuxiliaryConfig(field_value_embedding=False)
    assert build_auxiliary(off, AuxiliaryShape(2, (3,)), weight_V, 0.5, takes_logit=True).value_embedding is None


def test_penalty_by_hand() -> None:
    network = AuxiliaryNetwork(2, [3], 2, [4], 3, takes_logit=True, fit_weight=50.0)
    assert network.value_embedding is not None
    with torch.no_grad():
        network.value_embedding.weight.copy_(torch.tensor([[0.0, 0.0], [0.1, 0.2], [0.0, -0.1]]))
    # squares .01 + .04 + .01, over 2 · .1²: 3; rows of weight 5 bear a tenth of it
    assert network.compute_penalty(torch.tensor(5.0)).item() == pytest.approx(0.3)
    served = AuxiliaryNetwork(2, [3], 2, [4], 3, takes_logit=True)
    without = AuxiliaryNetwork(2, [3], 2, [4], None, takes_logit=True, fit_weight=50.0)
    assert served.compute_penalty(torch.tensor(5.0)).item() == without.compute_penalty(torch.tensor(5.0)).item() == 0


def test_an_embedding_that_no_label_wants_goes_to_the_prior_mode() -> None:
    # without labels the penalty is all there is, and its mode is 0
    network = AuxiliaryNetwork(2, [3], 2, [4], 3, takes_logit=True, fit_weight=10.0)
    assert network.value_embedding is not None
    before = network.value_embedding.weight.detach().abs().sum()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(200):
        network.compute_penalty(torch.tensor(1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert network.value_embedding.weight.detach().abs().sum() < 0.02 * before


def test_the_share_is_restored_from_a_checkpoint(tmp_path: Path) -> None:
    network = make_network(share_V=SHARE)
    train_a_little(network)
    publish_artifact(tmp_path / "model", {"auxiliary": network.state_dict()}, {"auxiliary": network.hyper_parameters})
    artifact = load_artifact(tmp_path / "model")
    again = AuxiliaryNetwork(**json.loads(json.dumps(artifact.documents["auxiliary"])))
    assert not torch.equal(again.embedding_share_V, network.embedding_share_V)  # as built: all ones
    again.load_state_dict(artifact.tensors["auxiliary"])
    np.testing.assert_array_equal(again.embedding_share_V.numpy(), SHARE)
    batch = make_batch(seed=5)
    assert torch.equal(again(*batch), network(*batch))
    # one that was written without shares is refused, not served with ones
    older = {name: tensor for name, tensor in artifact.tensors["auxiliary"].items() if name != "embedding_share_V"}
    with pytest.raises(RuntimeError, match=r"Missing key.*embedding_share_V"):
        again.load_state_dict(older)


def test_a_wide_inputs_cross_layer_is_a_product_of_two() -> None:
    narrow, wide = (
        AuxiliaryNetwork(n, [], 4, [3], None, takes_logit=False) for n in (2 * CROSS_RANK, 2 * CROSS_RANK + 1)
    )
    assert [weight.shape for weight in narrow.cross_layer.parameters()] == [(512, 512), (512,)]
    assert [weight.shape for weight in wide.cross_layer.parameters()] == [(256, 513), (513, 256), (513,)]
    nn.init.normal_(wide.output_layer.weight)
    x = np.random.default_rng(3).normal(size=(5, 513)).astype(np.float32)
    found = wide({NUMBERS: torch.from_numpy(x)}, torch.zeros(5).long(), torch.zeros(5)).detach().numpy()
    first, second, bias = (weight.detach().numpy().astype(float) for weight in wide.cross_layer.parameters())
    hidden, output = wide.hidden_layers[0], wide.output_layer.weight.detach().numpy()[0]
    crossed = x + x * (x @ first.T @ second.T + bias)
    activation = np.maximum(crossed @ hidden.weight.detach().numpy().T + hidden.bias.detach().numpy(), 0)
    np.testing.assert_allclose(found, activation @ output, rtol=1e-4, atol=1e-4)
