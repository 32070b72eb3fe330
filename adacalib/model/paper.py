"""Paper mode: posterior-guided functions, adaptive binning and auxiliary network trained together (Eq. 4 to 7).

Shape letters: B samples in the batch, U distinct field values in it, V field values, C candidate numbers of bins,
K bins (padded to the largest candidate), J = K + 1 bounds (padded with +inf), S posterior statistics per bin,
E embedding width, R functions (V, or 1 without adaptive functions).

Repairs without which the paper's text does not run: knot K + 1 repeats knot K; the mixture's cross-entropy is added to
Eq. 7 (else MLP_bin gets no gradient); equal bounds are merged; a value with one bin gets slope 1 through
(mean logit, posterior logit). MLP starts on the posterior logit: from random weights the penalty of Eq. 5 flattens
functions before they have learnt to rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adacalib.cells.candidate_bins import CandidateBins, compute_posterior_logit, compute_posterior_statistics
from adacalib.cells.functions import BinFunctions
from adacalib.cells.logit_cells import Floats
from adacalib.config import CalibratorConfig
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.calibrator import Calibrator
from adacalib.model.functions import interpolate

HIDDEN = 16
"""Width of MLP and of MLP_bin."""

LOWEST_TEMPERATURE = 0.05
"""Gumbel softmax gives NaN at 0."""


@dataclass(frozen=True)
class CandidateKnots:
    """Knots of the distinct field values of a batch: knots_UCJ and the slopes beyond the outer bounds."""

    knots_UCJ: Tensor
    slope_lower_UC: Tensor
    slope_upper_UC: Tensor


class PaperCalibrator(nn.Module):
    """The calibrator of the paper in training.

    Args:
        bins: bounds and posteriors of the calibrated field.
        weight_V: samples of each field value in train ∪ dev (s_z).
        settings: the run's calibrator section.
        auxiliary: the network, or None.
    """

    bin_bounds_VCJ: Tensor
    n_bins_VC: Tensor
    posterior_VCKS: Tensor
    single_offset_VC: Tensor
    frequency_V1: Tensor

    def __init__(
        self, bins: CandidateBins, weight_V: Floats, settings: CalibratorConfig, auxiliary: AuxiliaryNetwork | None
    ) -> None:
        super().__init__()
        self.settings, self.auxiliary = settings, auxiliary
        self.temperature, self.penalty_weight = settings.temperature_start, settings.choose_penalty_weight()
        log_frequency_V = np.log1p(weight_V)
        spread = log_frequency_V[1:].std()
        frequency_V = (log_frequency_V - log_frequency_V[1:].mean()) / (spread if spread > 1e-9 else 1.0)
        for name, values in (
            ("bin_bounds_VCJ", bins.bin_bounds_VCJ),
            ("n_bins_VC", bins.n_bins_VC),
            ("posterior_VCKS", compute_posterior_statistics(bins).astype(np.float32)),
            ("single_offset_VC", _single_bin_offset(bins)),
            ("frequency_V1", frequency_V[:, None].astype(np.float32)),
        ):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values)), persistent=False)
        n_values, n_candidates, _ = bins.weight_VCK.shape
        if settings.posterior_guidance:
            first, last = nn.Linear(2, HIDDEN), nn.Linear(HIDDEN, 1)
            _start_on_posteriors(first, last, compute_posterior_logit(bins)[bins.weight_VCK > 0])
            self.knot_network = nn.Sequential(first, nn.ReLU(), last)
        else:  # one free number per bin, from the identity
            middle_VCK = np.where(bins.weight_VCK > 0, bins.mean_logit_VCK, 0.0)
            if settings.adaptive_function:  # then no row trains the knots of unseen values
                middle_VCK[0] = compute_posterior_logit(bins)[0]
            self.free_knots_VCK = nn.Parameter(torch.from_numpy(middle_VCK.astype(np.float32)))
        if n_candidates > 1:
            width = settings.auxiliary.embedding_width
            self.bin_embedding = nn.Embedding(n_values, width, padding_idx=0)
            with torch.no_grad():  # frequency alone; no row is of such a value, so it stays
                self.bin_embedding.weight[torch.from_numpy(bins.is_unseen_V)] = 0.0
            self.bin_network = nn.Sequential(nn.Linear(1 + width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_candidates))

    @property
    def n_candidates(self) -> int:
        return self.n_bins_VC.shape[1]

    def compute_knots(self, ids_U: Tensor) -> CandidateKnots:
        """Knots of the field values given, once each (not once per sample); float64."""
        bounds_UCJ, n_bins_UC = self.bin_bounds_VCJ[ids_U], self.n_bins_VC[ids_U]
        if self.settings.posterior_guidance:
            raw_UCK = self.knot_network(self.posterior_VCKS[ids_U])[..., 0].double()
        else:
            raw_UCK = self.free_knots_VCK[ids_U].double()
        # knot K + 1 and the padding repeat knot K
        place_J = torch.arange(bounds_UCJ.shape[2], device=ids_U.device)
        knots_UCJ = raw_UCK.gather(2, torch.minimum(place_J.expand(bounds_UCJ.shape), n_bins_UC[..., None] - 1))
        last_bound_UC1 = bounds_UCJ.gather(2, n_bins_UC[..., None])
        single_UCJ = torch.minimum(bounds_UCJ, last_bound_UC1) + self.single_offset_VC[ids_U][..., None]
        knots_UCJ = torch.where((n_bins_UC == 1)[..., None], single_UCJ, knots_UCJ)
        slope_UCK = knots_UCJ.diff(dim=2) / bounds_UCJ.diff(dim=2).nan_to_num(nan=1.0, posinf=1.0)
        slope_upper_UC = slope_UCK.gather(2, n_bins_UC[..., None] - 1)[..., 0]
        return CandidateKnots(knots_UCJ, slope_UCK[..., 0], slope_upper_UC)

    def gate_logits(self, ids_U: Tensor) -> Tensor:
        """log α̂ (Eq. 6) of the field values given: MLP_bin(frequency, embedding), U × C."""
        state_UE = torch.cat([self.frequency_V1[ids_U], self.bin_embedding(ids_U)], dim=1)
        return F.log_softmax(self.bin_network(state_UE), dim=1).double()

    def forward(self, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """(calibrated log-odds per candidate BC, candidate weights α BC, monotony penalty per sample B)."""
        given_B = columns["field_value_id"].long()
        function_B = given_B if self.settings.adaptive_function else torch.zeros_like(given_B)
        ids_U, place_B = torch.unique(function_B, return_inverse=True)
        knots, n_bins_UC = self.compute_knots(ids_U), self.n_bins_VC[ids_U]
        logit_B = columns["uncalibrated_logit"].double()
        bounds_UCJ = self.bin_bounds_VCJ[ids_U]
        candidate_logit_BC = torch.stack(
            [
                interpolate(
                    bounds_UCJ[:, c],
                    knots.knots_UCJ[:, c],
                    n_bins_UC[:, c],
                    knots.slope_lower_UC[:, c],
                    knots.slope_upper_UC[:, c],
                    place_B,
                    logit_B,
                )
                for c in range(self.n_candidates)
            ],
            dim=1,
        )
        if self.auxiliary is not None:
            candidate_logit_BC = candidate_logit_BC + self.auxiliary(columns, given_B, logit_B)[:, None].double()
        penalty_U = F.relu(-knots.knots_UCJ.diff(dim=2)).sum(dim=(1, 2))
        if self.n_candidates == 1:
            return candidate_logit_BC, torch.ones_like(candidate_logit_BC), penalty_U[place_B]
        gate_BC = self.gate_logits(ids_U)[place_B]
        if self.training:
            gate_BC = gate_BC - torch.empty_like(gate_BC).exponential_().log()  # Gumbel noise, per sample
        weight_BC = torch.softmax(gate_BC / max(self.temperature, LOWEST_TEMPERATURE), dim=1)
        return candidate_logit_BC, weight_BC, penalty_U[place_B]

    def set_epoch(self, epoch: int, epochs: int) -> None:
        """Lowers the temperature geometrically from start (epoch 1) to end (the last of all epochs)."""
        start, end = self.settings.temperature_start, self.settings.temperature_end
        share = (epoch - 1) / max(epochs - 1, 1)
        self.temperature = start * (end / start) ** share

    def fold(self) -> tuple[Calibrator, Tensor]:
        """The serving calibrator (argmax candidate, no noise) and the candidate chosen per field value."""
        n_values = len(self.n_bins_VC)
        ids_V = torch.arange(n_values)
        row_V = ids_V if self.settings.adaptive_function else torch.zeros_like(ids_V)
        row_R = torch.unique(row_V)
        with torch.no_grad():
            knots = self.compute_knots(row_R)
            gates_RC = self.gate_logits(row_R) if self.n_candidates > 1 else torch.zeros(len(row_R), 1)
        chosen_R = gates_RC.argmax(dim=1)
        functions = BinFunctions(
            bin_bounds_RJ=self.bin_bounds_VCJ[row_R, chosen_R].numpy(),
            knots_RJ=knots.knots_UCJ[row_R, chosen_R].numpy(),
            n_bins_R=self.n_bins_VC[row_R, chosen_R].numpy(),
            slope_lower_R=knots.slope_lower_UC[row_R, chosen_R].numpy(),
            slope_upper_R=knots.slope_upper_UC[row_R, chosen_R].numpy(),
            row_V=row_V.numpy(),
            shift_V=np.zeros(n_values),
        )
        return Calibrator(functions, np.zeros(n_values), 0.0, self.auxiliary), chosen_R[row_V]


def compute_paper_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Eq. 5 summed over the candidates (Eq. 7), the mixture's cross-entropy, the network's penalty; see StepLoss."""
    logit_BC, weight_BC, penalty_B = module(columns)
    label_B, sample_weight_B = columns["label"].double(), columns["weight"].double()
    label_BC = label_B[:, None].expand_as(logit_BC)
    loss_B = F.binary_cross_entropy_with_logits(logit_BC, label_BC, reduction="none").sum(dim=1)
    loss_B = loss_B + float(module.penalty_weight) * penalty_B  # type: ignore[arg-type]
    n_terms = logit_BC.shape[1]
    if n_terms > 1:
        loss_B, n_terms = loss_B + _mixture_cross_entropy(logit_BC, weight_BC, label_B), n_terms + 1
    loss, weight = (sample_weight_B * loss_B).sum(), sample_weight_B.sum()
    if module.auxiliary is not None:
        # as many times as the labels are in the loss
        loss = loss + n_terms * module.auxiliary.compute_penalty(weight)  # type: ignore[union-attr,operator]
    return loss, weight


def compute_held_out_loss(module: nn.Module, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the mixture alone; see StepLoss."""
    logit_BC, weight_BC, _ = module(columns)
    sample_weight_B = columns["weight"].double()
    loss_B = _mixture_cross_entropy(logit_BC, weight_BC, columns["label"].double())
    return (sample_weight_B * loss_B).sum(), sample_weight_B.sum()


def _mixture_cross_entropy(logit_BC: Tensor, weight_BC: Tensor, label_B: Tensor) -> Tensor:
    log_weight_BC = weight_BC.clamp_min(1e-30).log()
    positive_B = torch.logsumexp(log_weight_BC + F.logsigmoid(logit_BC), dim=1)
    negative_B = torch.logsumexp(log_weight_BC + F.logsigmoid(-logit_BC), dim=1)
    return -(label_B * positive_B + (1 - label_B) * negative_B)


def _start_on_posteriors(first: nn.Linear, last: nn.Linear, posterior_logit: Floats) -> None:
    """Sets the weights of MLP so that it gives a bin's posterior logit; its other units start without effect.

    Two of its rectified units, of opposite sign, carry the standardised posterior logit through.

    Args:
        first, last: its layers; the first input is the standardised posterior logit.
        posterior_logit: of the filled bins, which it was standardised over.
    """
    spread = posterior_logit.std()
    with torch.no_grad():
        first.weight[:2] = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        first.bias[:2] = 0.0
        last.weight.zero_()
        last.weight[0, :2] = torch.tensor([1.0, -1.0]) * float(spread if spread > 1e-9 else 1.0)
        last.bias.fill_(float(posterior_logit.mean()))


def _single_bin_offset(bins: CandidateBins) -> Floats:
    """Posterior logit less mean logit of the first bin: the function of a value whose bounds all merged."""
    return np.asarray(compute_posterior_logit(bins)[..., 0] - bins.mean_logit_VCK[..., 0])
