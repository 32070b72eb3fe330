"""Paper mode, Eq. 4 to 7: by hand on small numbers, and against a NumPy oracle written from the paper's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.candidate_bins import CandidateBins, arrange_bins, compute_posterior_statistics
from adacalib.config import CalibratorConfig
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.paper import PaperCalibrator, compute_held_out_loss, compute_paper_loss
from tests.model.calibrator_world import N_FIELD_VALUES, Rows, bin_columns, cells_of, draw_rows

INF = np.inf


def two_values() -> CandidateBins:
    """Id 0 (all) and ids 1 and 2, candidates 1 and 2 bins, all with 2 bins for candidate 2 but id 2, which has one."""
    return CandidateBins(
        candidates=(1, 2),
        bin_bounds_VCJ=np.array(
            [[[-2.0, 2, INF], [-2, 0, 2]], [[-1.0, 1, INF], [-1, 0, 1]], [[1.0, 2, INF], [1, 2, INF]]]
        ),
        n_bins_VC=np.array([[1, 2], [1, 2], [1, 1]]),
        weight_VCK=np.array([[[20.0, 0], [10, 10]], [[12.0, 0], [6, 6]], [[8.0, 0], [8, 0]]]),
        response_VCK=np.array([[[10.0, 0], [4, 6]], [[6.0, 0], [2, 4]], [[4.0, 0], [4, 0]]]),
        mean_logit_VCK=np.array([[[0.0, 0], [-1, 1]], [[0.1, 0], [-0.5, 0.5]], [[1.4, 0], [1.4, 0]]]),
        is_unseen_V=np.array([True, False, False]),
    )


def make_settings(**changes: Any) -> CalibratorConfig:
    return CalibratorConfig.model_validate({"mode": "paper", "epochs": 4, "penalty_weight": 1.0, **changes})


def batch_by_hand() -> dict[str, Tensor]:
    """Two samples: value 1 at logit .25 responds, with weight 2; value 2 at logit 1.5 does not, with weight 1."""
    return {
        "field_value_id": torch.tensor([1, 2]),
        "uncalibrated_logit": torch.tensor([0.25, 1.5]),
        "label": torch.tensor([1, 0]),
        "weight": torch.tensor([2.0, 1.0]),
    }


def make_by_hand(**changes: Any) -> PaperCalibrator:
    """Free knots .5 and 1.5 (id 1, candidate 2 bins, falling: 1.5 first), a gate that says α = (1/4, 3/4) for all."""
    module = PaperCalibrator(two_values(), np.array([20.0, 12, 8]), make_settings(posterior_guidance=False), None)
    with torch.no_grad():
        module.free_knots_VCK[1, 1] = torch.tensor([1.5, 0.5])
        for parameter in module.bin_network.parameters():
            parameter.zero_()
        module.bin_network[2].bias.copy_(torch.tensor([0.0, np.log(3)]))
    return module.eval()


def test_eq_4_to_7_by_hand() -> None:
    # ȳ = .5.
    # Value 1, candidate 1: one bin, slope 1 through (mean logit, posterior logit) = (.1, log(6.25/6.25) = 0), so
    # .25 → .15. Candidate 2: knots (1.5, .5, .5), the last repeated; .25 is in the second bin, which is flat: .5.
    # Value 2: both candidates have its one bin: through (1.4, log(4.25/4.25) = 0), so 1.5 → .1.
    module = make_by_hand()
    logit_BC, weight_BC, penalty_B = module(batch_by_hand())
    np.testing.assert_allclose(logit_BC.detach().numpy(), [[0.15, 0.5], [0.1, 0.1]], atol=1e-7)
    # τ = 1: softmax(log (1/4, 3/4)) is (1/4, 3/4)
    np.testing.assert_allclose(weight_BC.detach().numpy(), [[0.25, 0.75]] * 2, atol=1e-7)
    # knots of value 1 fall by 1.5 - .5 = 1; one bin never falls
    np.testing.assert_allclose(penalty_B.detach().numpy(), [1.0, 0.0], atol=1e-7)
    # Eq. 7 + mixture, value 1: log(1 + e^-.15) + log(1 + e^-.5) + 1 - log(.25σ(.15) + .75σ(.5))
    #     = .620957 + .474077 + 1 - log(.134357 + .466844) = 2.095034 + .508826 = 2.603860
    # value 2: 2·log(1 + e^.1) + log(1 + e^.1) = 3·.744397 = 2.233190
    loss, weight = compute_paper_loss(module, batch_by_hand())
    assert loss.item() == pytest.approx(2 * 2.603860 + 2.233190, abs=1e-5)
    assert weight.item() == 3


def test_held_out_loss_is_the_mixtures_cross_entropy_alone() -> None:
    # value 1, weight 2: .508826 of the test above; value 2: log(1 + e^.1) = .744397
    loss, weight = compute_held_out_loss(make_by_hand(), batch_by_hand())
    assert (loss.item(), weight.item()) == (pytest.approx(2 * 0.508826 + 0.744397, abs=1e-5), 3)


def test_knots_start_on_the_posterior_logits() -> None:
    # value 1, two bins: log((2 + .25)/(4.25)), log(4.25/2.25); ȳ = .5. Whatever the seed of the other weights
    for seed in (1, 2):
        torch.manual_seed(seed)
        knots = PaperCalibrator(two_values(), np.array([20.0, 12, 8]), make_settings(), None).compute_knots(
            torch.tensor([1])
        )
        expected = np.log(2.25 / 4.25)
        np.testing.assert_allclose(knots.knots_UCJ[0, 1].detach().numpy(), [expected, -expected, -expected], atol=1e-6)


def test_knot_k_plus_1_repeats_knot_k_and_so_does_the_padding() -> None:
    knots = make_by_hand().compute_knots(torch.tensor([1, 2]))
    knots_UCJ = knots.knots_UCJ.detach().numpy()
    np.testing.assert_allclose(knots_UCJ[0, 1], [1.5, 0.5, 0.5])
    # one bin: (1 - 1.4, 2 - 1.4), the end repeated in the padding, so that the penalty finds nothing to fall
    np.testing.assert_allclose(knots_UCJ[1, 1], [-0.4, 0.6, 0.6], atol=1e-12)
    # slopes beyond the ends: first bin's (.5 - 1.5)/1, last bin's 0; one bin has slope 1 on both sides
    np.testing.assert_allclose(knots.slope_lower_UC[:, 1].detach().numpy(), [-1, 1])
    np.testing.assert_allclose(knots.slope_upper_UC[:, 1].detach().numpy(), [0, 1])


def test_a_lower_temperature_sharpens_the_weights() -> None:
    # τ = .5: α ∝ (1/4)², (3/4)² = (1, 9)/10
    module = make_by_hand()
    module.temperature = 0.5
    np.testing.assert_allclose(module(batch_by_hand())[1].detach().numpy(), [[0.1, 0.9]] * 2, atol=1e-7)


def test_temperature_falls_geometrically_from_start_to_end() -> None:
    module = PaperCalibrator(two_values(), np.array([20.0, 12, 8]), make_settings(), None)
    seen = []
    for epoch in (1, 2, 3, 4):
        module.set_epoch(epoch, 4)
        seen.append(module.temperature)
    # 1 to .3 in three steps of the factor .3^(1/3)
    np.testing.assert_allclose(seen, [1, 0.3 ** (1 / 3), 0.3 ** (2 / 3), 0.3])
    module.set_epoch(1, 1)
    assert module.temperature == 1


def test_gumbel_noise_only_in_training() -> None:
    module, n = make_by_hand(), 4000
    batch = {"field_value_id": torch.ones(n, dtype=torch.int64), "uncalibrated_logit": torch.zeros(n)}
    assert torch.equal(module(batch)[1], module(batch)[1])
    assert (module(batch)[1] == module(batch)[1][0]).all()
    torch.manual_seed(3)
    weight_BC = module.train()(batch)[1].detach()
    assert len(torch.unique(weight_BC[:, 0])) > n * 0.99  # drawn per sample
    # at τ = 1 the log-ratio is log 3 plus a difference of two Gumbels: logistic, mean 0, variance π²/3
    noise = (weight_BC[:, 1] / weight_BC[:, 0]).log().numpy() - np.log(3)
    assert noise.mean() == pytest.approx(0, abs=4 * np.pi / np.sqrt(3 * n))
    assert noise.var() == pytest.approx(np.pi**2 / 3, rel=0.1)
    # argmax of noisy logits picks a candidate with its probability (the Gumbel-max rule): 3/4
    assert (weight_BC.argmax(dim=1) == 1).double().mean().item() == pytest.approx(0.75, abs=0.03)


def draw_bins(seed: int = 3, candidates: tuple[int, ...] = (3, 5)) -> tuple[Rows, CandidateBins]:
    """Bins of a drawn world; value 6 is given one cell only, so that it borrows, and one bin."""
    rows = draw_rows(600, seed)
    rows["uncalibrated_logit"] = np.where(rows["field_value_id"] == 6, np.float32(0.4), rows["uncalibrated_logit"])
    bins = arrange_bins(bin_columns(cells_of(rows), candidates), N_FIELD_VALUES + 1)
    return rows, with_one_bin(bins, value=6)


def with_one_bin(bins: CandidateBins, value: int) -> CandidateBins:
    """The value's bounds merged to its one cell, as percentile_approx would have them."""
    bounds, n_bins = bins.bin_bounds_VCJ.copy(), bins.n_bins_VC.copy()
    weight, response, logit = bins.weight_VCK.copy(), bins.response_VCK.copy(), bins.mean_logit_VCK.copy()
    bounds[value] = INF
    bounds[value, :, :2] = [0.375, 0.40625]
    n_bins[value] = 1
    for array in (weight, response):
        array[value, :, 0] = array[value].sum(axis=1)
        array[value, :, 1:] = 0
    logit[value] = 0
    logit[value, :, 0] = 0.4
    return CandidateBins(bins.candidates, bounds, n_bins, weight, response, logit, bins.is_unseen_V)


def to_batch(rows: Rows, n_rows: int = 80) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values[:n_rows]) for name, values in rows.items()}


def make_module(bins: CandidateBins, auxiliary: bool = True, seed: int = 2, **changes: Any) -> PaperCalibrator:
    torch.manual_seed(seed)
    network = None
    if auxiliary:
        network = AuxiliaryNetwork(2, [3], 4, [6], N_FIELD_VALUES + 1, takes_logit=False)
        nn.init.normal_(network.output_layer.weight)
    weight_V = bins.weight_VCK[:, 0].sum(axis=1)
    return PaperCalibrator(bins, weight_V, make_settings(**changes), network).eval()


def network_oracle(layers: nn.Module, x: np.ndarray) -> np.ndarray:
    state = {name: tensor.numpy().astype(float) for name, tensor in layers.state_dict().items()}
    hidden = np.maximum(x @ state["0.weight"].T + state["0.bias"], 0)
    return hidden @ state["2.weight"].T + state["2.bias"]


def loss_oracle(module: PaperCalibrator, bins: CandidateBins, batch: dict[str, Tensor], penalty: float) -> float:
    """Eq. 4 to 7 sample by sample, α without noise at temperature 1."""
    statistics = compute_posterior_statistics(bins)
    frequency = np.log1p(bins.weight_VCK[:, 0].sum(axis=1))
    frequency = (frequency - frequency[1:].mean()) / frequency[1:].std()
    total = 0.0
    with torch.no_grad():
        term_B = np.zeros(len(batch["label"]))
        if module.auxiliary is not None:
            term_B = module.auxiliary(batch, batch["field_value_id"].long(), torch.zeros(1)).double().numpy()
    for b, (z, s, y, w) in enumerate(
        zip(*(batch[n].tolist() for n in ("field_value_id", "uncalibrated_logit", "label", "weight")), strict=True)
    ):
        z = z if module.settings.adaptive_function else 0
        logits, loss = [], 0.0
        for c in range(len(bins.candidates)):
            k = int(bins.n_bins_VC[z, c])
            bounds = bins.bin_bounds_VCJ[z, c, : k + 1]
            if k == 1:
                mean = bins.response_VCK[0, 0].sum() / bins.weight_VCK[0, 0].sum()
                rate = (bins.response_VCK[z, c, 0] + 0.5 * mean) / (bins.weight_VCK[z, c, 0] + 0.5)
                logit, knots = s - bins.mean_logit_VCK[z, c, 0] + np.log(rate / (1 - rate)), []
            else:
                if module.settings.posterior_guidance:
                    raw = network_oracle(module.knot_network, statistics[z, c, :k])[:, 0]
                else:
                    raw = module.free_knots_VCK[z, c, :k].detach().numpy()
                knots = [*raw, raw[-1]]  # knot K + 1 repeats knot K
                i = min(max(int(np.sum(s >= bounds)) - 1, 0), k - 1)
                slope = (knots[i + 1] - knots[i]) / (bounds[i + 1] - bounds[i])
                anchor = i + 1 if s >= bounds[-1] else i
                logit = knots[anchor] + slope * (s - bounds[anchor])
            logit += term_B[b]
            logits.append(logit)
            loss += np.logaddexp(0, logit) - y * logit
            loss += penalty * sum(max(knots[i] - knots[i + 1], 0) for i in range(len(knots) - 1))
        if len(bins.candidates) > 1:
            embedding = module.bin_embedding.weight[z].detach().numpy()
            gate = network_oracle(module.bin_network, np.array([[frequency[z], *embedding]]))[0]
            alpha = np.exp(gate) / np.exp(gate).sum()
            p = float(np.sum(alpha / (1 + np.exp(-np.array(logits)))))
            loss -= y * np.log(p) + (1 - y) * np.log(1 - p)
        total += w * loss
    return total


@pytest.mark.parametrize(
    ("changes", "auxiliary", "candidates"),
    [
        ({}, True, (3, 5)),
        ({"penalty_weight": 0.25}, False, (3, 5)),
        ({"posterior_guidance": False}, True, (3, 5)),
        ({"adaptive_function": False}, True, (3, 5)),
        ({"adaptive_binning": False}, False, (4,)),
    ],
)
def test_loss_is_the_oracles(changes: dict[str, Any], auxiliary: bool, candidates: tuple[int, ...]) -> None:
    rows, bins = draw_bins(candidates=candidates)
    module, batch = make_module(bins, auxiliary, **changes), to_batch(rows)
    assert 6 in batch["field_value_id"].tolist()  # the value with one bin is among them
    loss, weight = compute_paper_loss(module, batch)
    assert loss.item() == pytest.approx(loss_oracle(module, bins, batch, changes.get("penalty_weight", 1.0)), rel=1e-5)
    assert weight.item() == pytest.approx(rows["weight"][:80].sum())


def test_penalty_weight_weighs_the_penalty_alone() -> None:
    rows, bins = draw_bins()
    batch = to_batch(rows)
    losses = [compute_paper_loss(make_module(bins, penalty_weight=w), batch)[0].item() for w in (0.0, 1.0, 3.0)]
    assert losses[2] - losses[0] == pytest.approx(3 * (losses[1] - losses[0]))
    assert losses[1] > losses[0]


def test_every_network_gets_a_gradient() -> None:
    rows, bins = draw_bins()
    module = make_module(bins).train()
    loss, weight = compute_paper_loss(module, to_batch(rows))
    (loss / weight).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 500), st.booleans(), st.booleans(), st.sampled_from([(4,), (3, 5), (1, 2, 6)]))
def test_folded_it_serves_what_the_argmax_candidate_says(
    seed: int, guidance: bool, adaptive: bool, candidates: tuple[int, ...]
) -> None:
    rows, bins = draw_bins(seed, candidates)
    module = make_module(bins, seed=seed, posterior_guidance=guidance, adaptive_function=adaptive)
    batch = to_batch(rows)
    calibrator, chosen_V = module.fold()
    with torch.no_grad():
        logit_BC, weight_BC, _ = module(batch)
        ids_B = batch["field_value_id"].long()
        served_B = calibrator(ids_B, batch["uncalibrated_logit"], batch)
    best_B = weight_BC.argmax(dim=1)
    assert torch.equal(chosen_V[ids_B], best_B)
    np.testing.assert_allclose(served_B, logit_BC[torch.arange(80), best_B], atol=1e-6)
    if not adaptive:
        assert len(set(chosen_V.tolist())) == 1


def test_functions_pass_through_the_posterior_of_a_value_with_one_bin() -> None:
    _, bins = draw_bins()
    module = make_module(bins, auxiliary=False)
    total, responses = bins.weight_VCK[6, 0, 0], bins.response_VCK[6, 0, 0]
    mean = bins.response_VCK[0, 0].sum() / bins.weight_VCK[0, 0].sum()
    rate = (responses + 0.5 * mean) / (total + 0.5)
    line = torch.linspace(-2, 3, 11)
    logit_BC, _, penalty_B = module({"field_value_id": torch.full((11,), 6), "uncalibrated_logit": line})
    expected = line.double() - 0.4 + np.log(rate / (1 - rate))
    for c in (0, 1):
        np.testing.assert_allclose(logit_BC[:, c].detach(), expected, atol=1e-6)
    assert not penalty_B.any()


def test_without_adaptive_function_all_values_share_that_of_id_0() -> None:
    _, bins = draw_bins()
    module = make_module(bins, auxiliary=False, adaptive_function=False)
    line = torch.linspace(-3, 2, 9)
    per_value = [
        module({"field_value_id": torch.full((9,), z), "uncalibrated_logit": line})[0] for z in range(N_FIELD_VALUES)
    ]
    assert all(torch.equal(logits, per_value[0]) for logits in per_value)
    own = make_module(bins, auxiliary=False)
    different = [own({"field_value_id": torch.full((9,), z), "uncalibrated_logit": line})[0] for z in (1, 2)]
    assert not torch.allclose(*different)
    calibrator, chosen_V = module.fold()  # one curve serves all, by the candidate of id 0
    assert len(calibrator.table.knots_RJ) == 1 and calibrator.table.n_values == len(chosen_V) == len(bins.n_bins_VC)
    served = calibrator(torch.tensor([0, 3]).repeat_interleave(9), line.repeat(2), {}).reshape(2, 9)
    np.testing.assert_allclose(served, per_value[0][:, chosen_V[0]].detach().expand(2, 9), atol=1e-9)


def test_free_knots_start_at_the_mean_logit_of_their_bin() -> None:
    _, bins = draw_bins()
    module = make_module(bins, auxiliary=False, posterior_guidance=False)
    knots_UCJ = module.compute_knots(torch.tensor([1])).knots_UCJ.detach().numpy()
    np.testing.assert_allclose(knots_UCJ[0, 0, :3], bins.mean_logit_VCK[1, 0, :3], rtol=1e-6)
    assert not hasattr(module, "knot_network")


@pytest.mark.parametrize("adaptive", [True, False])
def test_row_0_starts_on_the_posteriors_where_no_row_trains_it_else_on_the_identity(adaptive: bool) -> None:
    _, bins = draw_bins()
    module = make_module(bins, auxiliary=False, posterior_guidance=False, adaptive_function=adaptive)
    knots_CK = module.free_knots_VCK[0].detach().numpy()
    filled_CK = bins.weight_VCK[0] > 0
    # (Σy + .5·ȳ)/(Σw + .5) as log-odds, or the mean logit
    mean_label = bins.response_VCK[0, 0].sum() / bins.weight_VCK[0, 0].sum()
    rate_CK = (bins.response_VCK[0] + 0.5 * mean_label) / (bins.weight_VCK[0] + 0.5)
    expected_CK = np.log(rate_CK / (1 - rate_CK)) if adaptive else bins.mean_logit_VCK[0]
    np.testing.assert_allclose(knots_CK[filled_CK], expected_CK[filled_CK], rtol=1e-5)


def test_one_candidate_has_neither_gate_nor_mixture() -> None:
    rows, bins = draw_bins(candidates=(4,))
    module, batch = make_module(bins, auxiliary=False), to_batch(rows)
    assert not hasattr(module, "bin_network")
    logit_BC, weight_BC, _ = module.train()(batch)
    assert logit_BC.shape == (80, 1)
    assert (weight_BC == 1).all()
    # no mixture: the loss is the candidate's own cross-entropy and its penalty
    loss, _ = compute_paper_loss(module, batch)
    penalty = (batch["weight"] * module(batch)[2]).sum()
    plain = nn.functional.binary_cross_entropy_with_logits(
        logit_BC[:, 0], batch["label"].double(), weight=batch["weight"], reduction="sum"
    )
    assert loss.item() == pytest.approx((plain + penalty).item())


def test_knots_are_computed_once_per_distinct_value() -> None:
    rows, bins = draw_bins()
    module, batch = make_module(bins), to_batch(rows)
    seen: list[int] = []
    assert isinstance(module.knot_network, nn.Module)
    module.knot_network.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[0]))
    gates: list[int] = []
    module.bin_network.register_forward_hook(lambda _, inputs, __: gates.append(inputs[0].shape[0]))
    module(batch)
    n_distinct = len(set(batch["field_value_id"].tolist()))
    assert seen == gates == [n_distinct]
    assert n_distinct < 80


def test_rates_of_0_and_1_and_one_class_stay_finite() -> None:
    rows, _ = draw_bins()
    for label in (0, 1):
        rows["label"] = np.full_like(rows["label"], label)
        cells = cells_of(rows)
        bins = arrange_bins(bin_columns(cells, (3, 5)), N_FIELD_VALUES + 1)
        assert compute_bin_bounds(cells, 5).n_bins_V.min() >= 1
        module = make_module(bins).train()
        loss, _ = compute_paper_loss(module, to_batch(rows))
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in module.parameters() if p.grad is not None)


def test_a_temperature_of_zero_is_held_off_nan() -> None:
    module = make_by_hand().train()
    module.temperature = 0.0
    assert torch.isfinite(compute_paper_loss(module, batch_by_hand())[0])


def test_frequency_of_equal_values_is_zero_and_not_nan() -> None:
    module = PaperCalibrator(two_values(), np.array([20.0, 10, 10]), make_settings(), None)
    assert module.frequency_V1[1:].tolist() == [[0.0], [0.0]]


def test_a_field_value_that_the_bins_do_not_know_is_refused() -> None:
    rows, bins = draw_bins()
    with pytest.raises(IndexError, match=r"out of bounds|out of range"):
        make_module(bins)(to_batch(rows, 1) | {"field_value_id": torch.tensor([99])})
