"""Optional parts of robust mode that train on logit cells: the residual network on the posteriors (algorithm.md part 2,
step 4) and the gate that chooses a field value's number of bins.

Both learn out of fold: a fold's functions and posteriors come from the other folds, the loss from its own cells. What
is applied to a fold is trained without that fold's loss: a row's label reaches its own out-of-fold logit only through
the other folds' functions, which few shared weights see. The last of the folds trained on is held out to choose the
step, and step 0, no effect, is allowed.

Shape letters: V field values, C candidate numbers of bins, J bounds (padded), N cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adacalib.cells.bin_bounds import BinBounds, sum_bins
from adacalib.cells.functions import BinFunctions, build_functions
from adacalib.cells.logit_cells import Floats, Ints, LogitCells, compute_mean_label
from adacalib.cells.out_of_fold import FieldFit, leave_fold_out
from adacalib.model.functions import interpolate, stack_functions

HIDDEN = 16
STEPS = 150
LEARNING_RATE = 0.01
MIN_INCREMENT = 0.001
_SHARPNESS = 8.0


@dataclass(frozen=True)
class _Candidate:
    """One candidate's functions and posteriors, fitted on some cells, as tensors."""

    bin_bounds_VJ: Tensor
    knots_VJ: Tensor
    n_bins_V: Tensor
    posterior_VJ2: Tensor


@dataclass(frozen=True)
class _Fold:
    """What one fold's loss needs: candidates from the other folds, its own cells, value frequencies (log n, log y)."""

    candidates: tuple[_Candidate, ...]
    frequency_V2: Tensor
    ids_N: Tensor
    logit_N: Tensor
    weight_N: Tensor
    response_N: Tensor


class Refinement(nn.Module):
    """Moves knots by a network on their posteriors, and weighs candidates by a network on the value's frequency."""

    def __init__(self, n_candidates: int, has_residual: bool) -> None:
        super().__init__()
        self.residual = _start_at_zero(2, 1) if has_residual else None
        self.gate = _start_at_zero(2, n_candidates) if n_candidates > 1 else None

    def compute_knots(self, candidate: _Candidate) -> Tensor:
        """First knot + r_1, increments softplus(softplus⁻¹(8d) + 8(r_{k+1} − r_k))/8, d at least .001: monotone."""
        if self.residual is None:
            return candidate.knots_VJ
        moved_VJ = self.residual(candidate.posterior_VJ2)[..., 0].double()
        increment_VK = candidate.knots_VJ.diff(dim=1).clamp_min(MIN_INCREMENT) * _SHARPNESS
        start_VK = increment_VK + torch.log(-torch.expm1(-increment_VK))  # the naive inverse overflows
        new_VK = F.softplus(start_VK + _SHARPNESS * moved_VJ.diff(dim=1)) / _SHARPNESS
        first_V1 = (candidate.knots_VJ[:, 0] + moved_VJ[:, 0])[:, None]
        return torch.cat([first_V1, first_V1 + new_VK.cumsum(dim=1)], dim=1)

    def weigh(self, frequency_V2: Tensor) -> Tensor:
        """log α per field value and candidate, V × C."""
        if self.gate is None:
            return torch.zeros(len(frequency_V2), 1, dtype=torch.float64)
        return F.log_softmax(self.gate(frequency_V2), dim=1).double()

    def compute_loss(self, fold: _Fold) -> Tensor:
        """Mean cross-entropy of the mixed probability over a fold's cells."""
        logits_NC = torch.stack([_evaluate(c, self.compute_knots(c), fold) for c in fold.candidates], dim=1)
        weight_NC = self.weigh(fold.frequency_V2)[fold.ids_N]
        positive_N = torch.logsumexp(weight_NC + F.logsigmoid(logits_NC), dim=1)
        negative_N = torch.logsumexp(weight_NC + F.logsigmoid(-logits_NC), dim=1)
        loss_N = -(fold.response_N * positive_N + (fold.weight_N - fold.response_N) * negative_N)
        return loss_N.sum() / fold.weight_N.sum()


def refine_field_part(
    fits: Sequence[FieldFit],
    folds: Sequence[LogitCells],
    bounds: Sequence[BinBounds],
    has_residual: bool,
    seed: int,
) -> FieldFit:
    """Trains the wanted parts and returns the field fit with the moved knots and each value's chosen candidate.

    Args:
        fits: one per candidate number of bins, each with fold functions.
        folds: the cells of each fold, at least 2.
        bounds: one per candidate.
        has_residual: whether knots are moved.
        seed: of the networks' first weights.
    """
    whole = _build_fold(_functions_of(fits, None), leave_fold_out(folds, -1), None, bounds)
    parts = [
        _build_fold(_functions_of(fits, place), leave_fold_out(folds, place), folds[place], bounds)
        for place in range(len(folds))
    ]
    module, losses = _train(parts, len(fits), has_residual, seed)
    functions, chosen_V = _apply(module, whole, bounds)
    diagnostics = fits[0].diagnostics | losses
    if len(bounds) > 1:
        n_bins = np.array([bound.bin_bounds_VJ.shape[1] - 1 for bound in bounds])
        diagnostics["chosen_candidates"] = n_bins[chosen_V].tolist()
    fold_functions = []
    for place, part in enumerate(parts):
        others = [other for position, other in enumerate(parts) if position != place]
        fold_functions.append(_apply(_train(others, len(fits), has_residual, seed)[0], part, bounds)[0])
    return replace(fits[0], functions=functions, fold_functions=tuple(fold_functions), diagnostics=diagnostics)


def posterior_at_bounds(cells: LogitCells, bounds: BinBounds) -> Floats:
    """(logit of the rate, log1p of the responses) of the two bins that meet at each bound, V × J × 2, standardised."""
    sums = sum_bins(cells, bounds)
    weight_VJ, response_VJ = (
        np.pad(values, ((0, 0), (0, 1))) + np.pad(values, ((0, 0), (1, 0)))
        for values in (sums.weight_VK, sums.response_VK)
    )
    mean = compute_mean_label(sums.response_VK[0].sum(), sums.weight_VK[0].sum())
    rate_VJ = (response_VJ + 0.5 * mean) / (weight_VJ + 0.5)
    statistics = np.stack([np.log(rate_VJ) - np.log1p(-rate_VJ), np.log1p(response_VJ)], axis=-1)
    filled = weight_VJ > 0
    spread = statistics[filled].std(axis=0)
    return np.asarray((statistics - statistics[filled].mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0))


def _start_at_zero(n_in: int, n_out: int) -> nn.Sequential:
    last = nn.Linear(HIDDEN, n_out)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(n_in, HIDDEN), nn.ReLU(), last)


def _functions_of(fits: Sequence[FieldFit], fold: int | None) -> list[BinFunctions]:
    return [fit.functions if fold is None else fit.fold_functions[fold] for fit in fits]


def _build_fold(
    functions: Sequence[BinFunctions], fitted: LogitCells, own: LogitCells | None, bounds: Sequence[BinBounds]
) -> _Fold:
    candidates = tuple(
        _Candidate(
            torch.from_numpy(function.bin_bounds_RJ),
            torch.from_numpy(function.knots_RJ),
            torch.from_numpy(function.n_bins_R),
            torch.from_numpy(posterior_at_bounds(fitted, bound).astype(np.float32)),
        )
        for function, bound in zip(functions, bounds, strict=True)
    )
    counts = np.stack([fitted.sum_by_value(fitted.weight), fitted.sum_by_value(fitted.response)], axis=1)
    frequency = np.log1p(counts)
    spread = frequency[1:].std(axis=0)
    frequency = (frequency - frequency[1:].mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    own = fitted if own is None else own
    return _Fold(
        candidates,
        torch.from_numpy(frequency.astype(np.float32)),
        torch.from_numpy(own.field_value_id),
        torch.from_numpy(own.logit),
        torch.from_numpy(own.weight),
        torch.from_numpy(own.response),
    )


def _evaluate(candidate: _Candidate, knots_VJ: Tensor, fold: _Fold) -> Tensor:
    row_V, last_V = torch.arange(len(knots_VJ)), candidate.n_bins_V
    bounds_VJ = candidate.bin_bounds_VJ
    lower_V = (knots_VJ[:, 1] - knots_VJ[:, 0]) / (bounds_VJ[:, 1] - bounds_VJ[:, 0])
    upper_V = (knots_VJ[row_V, last_V] - knots_VJ[row_V, last_V - 1]) / (
        bounds_VJ[row_V, last_V] - bounds_VJ[row_V, last_V - 1]
    )
    return interpolate(bounds_VJ, knots_VJ, last_V, lower_V, upper_V, fold.ids_N, fold.logit_N)


def _train(
    folds: Sequence[_Fold], n_candidates: int, has_residual: bool, seed: int
) -> tuple[Refinement, dict[str, float]]:
    """Adam on all folds but the last; the step of least loss on the last one stays."""
    *trained, held_out = folds
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    module = Refinement(n_candidates, has_residual)
    torch.set_rng_state(generator_state)
    optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE)
    best_state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with torch.no_grad():
        start = best = float(module.compute_loss(held_out))
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.stack([module.compute_loss(fold) for fold in trained]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            loss = float(module.compute_loss(held_out))
        if loss < best:
            best, best_state = loss, {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.load_state_dict(best_state)
    return module, {"refinement_loss_before": start, "refinement_loss_after": best}


def _apply(module: Refinement, fold: _Fold, bounds: Sequence[BinBounds]) -> tuple[BinFunctions, Ints]:
    """The functions of each value's best candidate, and that candidate's place; padded to the widest candidate."""
    with torch.no_grad():
        knots = [module.compute_knots(candidate).numpy() for candidate in fold.candidates]
        chosen_V = module.weigh(fold.frequency_V2).argmax(dim=1).numpy()
    functions = stack_functions([build_functions(bound, own) for bound, own in zip(bounds, knots, strict=True)])
    row_V = np.arange(len(chosen_V))
    own_V = chosen_V * len(chosen_V) + row_V
    return BinFunctions(
        bin_bounds_RJ=functions.bin_bounds_RJ[own_V],
        knots_RJ=functions.knots_RJ[own_V],
        n_bins_R=functions.n_bins_R[own_V],
        slope_lower_R=functions.slope_lower_R[own_V],
        slope_upper_R=functions.slope_upper_R[own_V],
        row_V=row_V,
        shift_V=functions.shift_V[own_V],
    ), chosen_V
