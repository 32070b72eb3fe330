from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import BinBounds, compute_bin_bounds
from adacalib.cells.functions import BinFunctions, interpolate
from adacalib.cells.logit_cells import LogitCells, cells_from_columns
from adacalib.cells.out_of_fold import FieldFit, RobustSwitches, deal_folds, fit_field_part, leave_fold_out
from adacalib.cells.robust import compute_log_loss
from adacalib.model import refine
from adacalib.model.refine import MIN_INCREMENT, Refinement, posterior_at_bounds, refine_field_part
from tests.cells.small_world import cells_by_hand, draw_rows

N_VALUES = 9


def make_fits(
    candidates: tuple[int, ...] = (8,), n_rows: int = 4000
) -> tuple[list[FieldFit], tuple[LogitCells, ...], list[BinBounds]]:
    """Fits with four folds per candidate number of bins."""
    (z, s, y, _), _ = draw_rows(n_rows, N_VALUES - 1, seed=4)
    one = np.ones(n_rows)
    columns = {
        "field_value_id": z,
        "cell": np.floor(32 * s).astype(np.int64),
        "fold": np.arange(n_rows) % 4,
        "n_samples": one.astype(np.int64),
        "n_responses": y,
        "sum_weight": one,
        "sum_weight_responses": y.astype(float),
        "sum_weight_logit": s,
    }
    folds = deal_folds(columns, N_VALUES, 4, seed=1)
    cells = cells_from_columns(columns, N_VALUES)
    bounds = [compute_bin_bounds(cells, n_bins) for n_bins in candidates]
    switches = RobustSwitches(do_no_harm=False)
    return [fit_field_part(columns, N_VALUES, folds, own, switches, 1) for own in bounds], folds, bounds


def make_candidate(functions: BinFunctions, cells: LogitCells, bounds: BinBounds) -> Any:
    return refine._build_fold([functions], cells, None, [bounds]).candidates[0]


def line_by_hand() -> Any:
    """One function with knots 0, .5, .5 (a flat bin), 3.5 at bounds 0, 1, 2, 3, and posteriors 1, 2, 3, 4."""
    return refine._Candidate(
        bin_bounds_VJ=torch.tensor([[0.0, 1, 2, 3]], dtype=torch.float64),
        knots_VJ=torch.tensor([[0.0, 0.5, 0.5, 3.5]], dtype=torch.float64),
        n_bins_V=torch.tensor([3]),
        posterior_VJ2=torch.tensor([[[1.0, 0], [2.0, 0], [3.0, 0], [4.0, 0]]]),
    )


class Fixed(torch.nn.Module):
    """A residual that is 0.1 times the posterior's first number."""

    def forward(self, posterior_VJ2: torch.Tensor) -> torch.Tensor:
        return 0.1 * posterior_VJ2[..., :1]


def test_knots_by_hand() -> None:
    # at zero residual: increments .5, max(0, .001), 3
    module = Refinement(1, has_residual=True)
    np.testing.assert_allclose(
        module.compute_knots(line_by_hand()).detach().numpy(), [[0, 0.5, 0.501, 3.501]], atol=1e-8
    )
    # residuals .1, .2, .3, .4: first knot .1; increments log(1 + e^(x + .8))/8 with e^x = e^(8d) - 1:
    # d = .5: log(1 + 53.598·e^.8)/8 = .5987329; d = .001: log(1 + .0080321·e^.8)/8 = .0022146
    # d = 3: log(1 + (e^24 - 1)·e^.8)/8 = 3.1
    module.residual = Fixed()
    expected = np.cumsum([0.1, 0.5987329, 0.0022146, 3.1])
    np.testing.assert_allclose(module.compute_knots(line_by_hand()).detach().numpy(), [expected], atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 50))
def test_monotone_for_any_residual(seed: int, size: float) -> None:
    fits, folds, bounds = _FITS
    module = Refinement(1, has_residual=True)
    torch.manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=size)
    candidate = make_candidate(fits[0].functions, folds[0], bounds[0])
    knots_VJ = module.compute_knots(candidate).detach().numpy()
    assert np.all(np.isfinite(knots_VJ))
    assert np.all(np.diff(knots_VJ, axis=1) >= 0)


_FITS = make_fits()


def test_starts_at_the_unrefined_functions() -> None:
    fits, folds, bounds = _FITS
    functions = fits[0].functions
    knots_VJ = Refinement(1, True).compute_knots(make_candidate(functions, folds[0], bounds[0])).detach().numpy()
    wanted_VJ = functions.knots_RJ
    # a bin that rises by less than .001 is lifted to it; all the rest is as it was
    lifted_VK = np.maximum(MIN_INCREMENT - np.diff(wanted_VJ, axis=1), 0)
    expected_VJ = wanted_VJ + np.pad(np.cumsum(lifted_VK, axis=1), ((0, 0), (1, 0)))
    np.testing.assert_allclose(knots_VJ, expected_VJ, atol=1e-7)
    assert lifted_VK[:, : bounds[0].n_bins_V.min()].sum() < 0.01
    # without the network nothing at all is touched
    same = Refinement(2, False).compute_knots(make_candidate(functions, folds[0], bounds[0])).numpy()
    np.testing.assert_array_equal(same, wanted_VJ)


def test_without_steps_the_function_table_is_the_unrefined_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 0)
    fits, folds, bounds = _FITS
    refined = refine_field_part(fits, folds, bounds, has_residual=True, seed=1)
    for actual, expected in zip(
        (refined.functions, *refined.fold_functions), (fits[0].functions, *fits[0].fold_functions), strict=True
    ):
        np.testing.assert_allclose(actual.knots_RJ, expected.knots_RJ, atol=0.002)
        np.testing.assert_array_equal(actual.bin_bounds_RJ, expected.bin_bounds_RJ)
    told = refined.diagnostics
    assert told["refinement_loss_before"] == told["refinement_loss_after"]


@pytest.mark.parametrize("candidates", [(8,), (2, 8)])
def test_never_worse_on_the_held_out_fold(candidates: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 40)
    fits, folds, bounds = make_fits(candidates)
    refined = refine_field_part(fits, folds, bounds, has_residual=True, seed=1)
    told = refined.diagnostics
    assert told["refinement_loss_after"] <= told["refinement_loss_before"]
    assert refined.fold_functions[0].bin_bounds_RJ.shape[1] == max(candidates) + 1
    if len(candidates) == 1:
        # the loss told is that of the functions, in NumPy (edge slopes play no part: all cells are inside the bounds)
        held_out = folds[-1]
        logit = interpolate(fits[0].fold_functions[-1], held_out.field_value_id, held_out.logit)
        assert compute_log_loss(held_out, logit) == pytest.approx(told["refinement_loss_before"], abs=2e-5)


def test_what_is_applied_to_a_fold_is_trained_without_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 1)
    trained_on = []

    def note(parts: Any, *rest: Any) -> Any:
        trained_on.append([int(part.weight_N.sum()) for part in parts])
        return train(parts, *rest)

    train = refine._train
    monkeypatch.setattr(refine, "_train", note)
    fits, folds, bounds = make_fits((2, 8))
    unequal = tuple(fold.select(np.arange(len(fold)) >= place) for place, fold in enumerate(folds))
    weights = [int(fold.weight.sum()) for fold in unequal]
    assert len(set(weights)) == 4  # so that a weight tells the fold
    refine_field_part(fits, unequal, bounds, has_residual=True, seed=1)
    assert trained_on[0] == weights
    assert trained_on[1:] == [weights[:place] + weights[place + 1 :] for place in range(4)]


def test_a_step_that_harms_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # steps of 1,000 lead away from anything sensible: step 0 stays
    monkeypatch.setattr(refine, "STEPS", 3)
    monkeypatch.setattr(refine, "LEARNING_RATE", 1000.0)
    fits, folds, bounds = _FITS
    refined = refine_field_part(fits, folds, bounds, has_residual=True, seed=1)
    assert refined.diagnostics["refinement_loss_after"] == refined.diagnostics["refinement_loss_before"]
    np.testing.assert_allclose(refined.functions.knots_RJ, fits[0].functions.knots_RJ, atol=0.002)


def test_the_gate_finds_the_better_candidate_and_serves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first candidate's functions are ruined (log-odds + 3): every value is to take the second
    monkeypatch.setattr(refine, "LEARNING_RATE", 0.1)
    monkeypatch.setattr(refine, "STEPS", 60)
    fits, folds, bounds = make_fits((2, 8))

    def ruin(functions: BinFunctions) -> BinFunctions:
        return replace(functions, knots_RJ=functions.knots_RJ + 3)

    fits[0] = replace(
        fits[0],
        functions=ruin(fits[0].functions),
        fold_functions=tuple(ruin(functions) for functions in fits[0].fold_functions),
    )
    refined = refine_field_part(fits, folds, bounds, has_residual=False, seed=1)
    assert refined.diagnostics["chosen_candidates"] == [8] * N_VALUES
    np.testing.assert_array_equal(refined.functions.knots_RJ, fits[1].functions.knots_RJ)
    np.testing.assert_array_equal(refined.functions.n_bins_R, fits[1].functions.n_bins_R)
    for fold in range(4):
        np.testing.assert_array_equal(refined.fold_functions[fold].knots_RJ, fits[1].fold_functions[fold].knots_RJ)
    assert refined.diagnostics["refinement_loss_after"] < refined.diagnostics["refinement_loss_before"] - 0.05


def test_a_narrow_candidate_is_padded_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    # untrained, the gate is indifferent and argmax takes the first, 2 bins in a table of 8
    monkeypatch.setattr(refine, "STEPS", 0)
    fits, folds, bounds = make_fits((2, 8))
    refined = refine_field_part(fits, folds, bounds, has_residual=False, seed=1)
    assert refined.diagnostics["chosen_candidates"] == [2] * N_VALUES
    assert refined.functions.knots_RJ.shape == (N_VALUES, 9)
    assert np.all(np.isinf(refined.functions.bin_bounds_RJ[:, 3:]))
    ids, line = np.repeat(np.arange(N_VALUES), 40), np.tile(np.linspace(-9, 4, 40), N_VALUES)
    expected = interpolate(fits[0].functions, ids, line)
    np.testing.assert_allclose(interpolate(refined.functions, ids, line), expected, rtol=1e-12)


def test_mixture_loss_of_a_fold_is_the_one_written_out() -> None:
    fits, folds, bounds = make_fits((2, 8), n_rows=800)
    module = Refinement(2, has_residual=False)
    torch.manual_seed(1)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    fold = refine._build_fold([fit.fold_functions[0] for fit in fits], leave_fold_out(folds, 0), folds[0], bounds)
    with torch.no_grad():
        found = module.compute_loss(fold).item()
        alpha_VC = module.weigh(fold.frequency_V2).exp().numpy()
    own = folds[0]
    scores = [1 / (1 + np.exp(-interpolate(fit.fold_functions[0], own.field_value_id, own.logit))) for fit in fits]
    p = sum(alpha_VC[own.field_value_id, c] * scores[c] for c in (0, 1))
    loss = -np.sum(own.response * np.log(p) + (own.weight - own.response) * np.log(1 - p)) / own.weight.sum()
    assert np.ptp(alpha_VC[:, 0]) > 0.01
    assert found == pytest.approx(loss, abs=1e-6)


def test_posterior_at_bounds_by_hand() -> None:
    # one value, bins [0, 1/32) and [1/32, 2/32) with (n, y) = (4, 1), (12, 6); ȳ = 7/16. At the bounds (4, 1),
    # both (16, 7), (12, 6): logits of (y + .5·7/16)/(n + .5), and log(1 + y)
    cells = cells_by_hand([(1, 0, 4, 1), (1, 1, 12, 6)], 2)
    bounds = BinBounds(np.array([[0.0, 1 / 32, 2 / 32]] * 2), np.array([2, 2]))
    n, y = np.array([4, 16, 12]), np.array([1, 7, 6])
    rate = (y + 0.5 * 7 / 16) / (n + 0.5)
    columns = np.log(rate / (1 - rate)), np.log1p(y)
    # rows 0 (all) and 1 are the same here, so mean and standard deviation are those of three numbers
    expected = np.stack([(c - c.mean()) / c.std() for c in columns], axis=-1)
    np.testing.assert_allclose(posterior_at_bounds(cells, bounds), [expected, expected], rtol=1e-9)


def test_same_seed_same_knots_and_no_trace_on_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 5)
    fits, folds, bounds = _FITS
    torch.manual_seed(9)
    first = refine_field_part(fits, folds, bounds, has_residual=True, seed=1)
    after = torch.rand(1)
    torch.manual_seed(9)
    assert torch.rand(1) == after
    again = refine_field_part(fits, folds, bounds, has_residual=True, seed=1)
    np.testing.assert_array_equal(again.functions.knots_RJ, first.functions.knots_RJ)


def test_one_bounds_per_fit_is_needed() -> None:
    fits, folds, bounds = _FITS
    with pytest.raises(ValueError, match="zip"):
        refine_field_part(fits, folds, bounds * 2, has_residual=True, seed=1)
