"""adacalib/model/functions.py: Eq. 4 in torch against its twin in NumPy and against the oracle's loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.functions import FUNCTION_ARRAYS, BinFunctions, build_functions
from adacalib.cells.functions import interpolate as interpolate_numpy
from adacalib.model.functions import FunctionTable, interpolate
from tests import oracle


def draw_functions(seed: int, n_values: int = 4, n_bins: int = 5) -> BinFunctions:
    """Random functions; value 1 has one bin, the others any number of them, the rest is padding."""
    rng = np.random.default_rng(seed)
    n_bins_V = np.minimum(rng.integers(1, n_bins + 1, n_values), np.where(np.arange(n_values) == 1, 1, n_bins))
    bounds_VJ = np.cumsum(rng.uniform(0.1, 2, (n_values, n_bins + 1)), axis=1) - 4
    bounds_VJ[np.arange(n_bins + 1) > n_bins_V[:, None]] = np.inf
    knots_VJ = np.cumsum(rng.uniform(-0.2, 1, bounds_VJ.shape), axis=1)
    return build_functions(BinBounds(bounds_VJ, n_bins_V), knots_VJ)


def share_curves(functions: BinFunctions, seed: int) -> BinFunctions:
    """As many field values again, each at any of the curves, shifted."""
    rng, n_values = np.random.default_rng(seed), 2 * functions.n_values
    return replace(functions, row_V=rng.integers(0, n_values // 2, n_values), shift_V=rng.normal(size=n_values))


def draw_logits(functions: BinFunctions, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(ids, logits): inside, far outside, on every bound and next to it."""
    bounds_VJ = functions.bin_bounds_RJ
    value, place = np.nonzero(np.isfinite(bounds_VJ))
    on = bounds_VJ[value, place]
    anywhere = np.random.default_rng(seed).uniform(-9, 9, 60)
    ids = np.concatenate([value, value, value, np.arange(60) % len(bounds_VJ)])
    return ids, np.concatenate([on, np.nextafter(on, -np.inf), np.nextafter(on, np.inf), anywhere])


def test_by_hand() -> None:
    # id 0: knots 0, 1, 4 at 0, 1, 2; below slope 1, above 3. id 1: one bin from (0, 5) to (2, 6), slope .5
    bounds = BinBounds(np.array([[0.0, 1.0, 2.0], [0.0, 2.0, np.inf]]), np.array([2, 1]))
    table = FunctionTable(build_functions(bounds, np.array([[0.0, 1.0, 4.0], [5.0, 6.0, 99.0]])))
    ids = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    logits = torch.tensor([-2.0, 0.0, 0.5, 1.0, 1.5, 3.0, -2.0, 1.0, 2.0, 4.0])
    expected = [-2, 0, 0.5, 1, 2.5, 7, 4, 5.5, 6, 7]
    assert table(ids, logits).tolist() == expected
    assert table(ids, logits).dtype == torch.float64
    assert table.n_values == 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_equals_its_numpy_twin_and_the_oracle(seed: int, n_bins: int) -> None:
    functions = draw_functions(seed, n_bins=n_bins)
    ids, logits = draw_logits(functions, seed)
    found = FunctionTable(functions)(torch.from_numpy(ids), torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(found, interpolate_numpy(functions, ids, logits), rtol=1e-13, atol=1e-13)
    for i, (z, x) in enumerate(zip(ids, logits, strict=True)):
        last = functions.n_bins_R[z] + 1
        slopes = functions.slope_lower_R[z], functions.slope_upper_R[z]
        expected = oracle.piecewise_linear(functions.bin_bounds_RJ[z, :last], functions.knots_RJ[z, :last], *slopes, x)
        assert found[i] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_continuous_everywhere(seed: int) -> None:
    functions = draw_functions(seed)
    value, place = np.nonzero(np.isfinite(functions.bin_bounds_RJ))
    on = functions.bin_bounds_RJ[value, place]
    table, ids = FunctionTable(functions), torch.from_numpy(value)
    below, at, above = (table(ids, torch.from_numpy(on + step)).numpy() for step in (-1e-9, 0, 1e-9))
    np.testing.assert_allclose(below, at, atol=1e-7)
    np.testing.assert_allclose(above, at, atol=1e-7)


@pytest.mark.parametrize(
    ("logit", "gradient"),
    [
        # a quarter of the way through bin 1: ∂/∂knot = 3/4 and 1/4
        (1.25, [0, 0.75, 0.25, 0, 0]),
        (0.0, [1, 0, 0, 0, 0]),
        (2.0, [0, 0, 1, 0, 0]),
        # beyond the ends only the end's knot; the slope has a gradient of its own
        (-3.0, [1, 0, 0, 0, 0]),
        (7.0, [0, 0, 0, 1, 0]),
    ],
)
def test_gradients_reach_the_two_neighbouring_knots_only(logit: float, gradient: list[float]) -> None:
    bounds = torch.tensor([[0.0, 1.0, 2.0, 3.0, torch.inf]], dtype=torch.float64)
    knots = torch.tensor([[0.0, 1.0, 1.5, 4.0, 4.0]], dtype=torch.float64, requires_grad=True)
    slope = torch.ones(1, dtype=torch.float64, requires_grad=True)
    row, at = torch.tensor([0]), torch.tensor([logit], dtype=torch.float64)
    interpolate(bounds, knots, torch.tensor([3]), slope, slope, row, at).sum().backward()
    assert knots.grad is not None and slope.grad is not None
    np.testing.assert_allclose(knots.grad.numpy(), [gradient], atol=1e-15)
    # s - b_1 below, s - b_4 above, 0 inside
    assert slope.grad.item() == pytest.approx({-3.0: -3.0, 7.0: 4.0}.get(logit, 0.0))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_shared_curves_are_found(n_bins: int, seed: int) -> None:
    functions = share_curves(draw_functions(seed, n_bins=n_bins), seed)
    table = FunctionTable(functions)
    assert (table.n_values, len(table.knots_RJ)) == (8, 4)
    logits, ids = np.random.default_rng(seed).uniform(-9, 9, 80), np.arange(80) % 8
    # each value's function written out
    knots_RJ = functions.knots_RJ[functions.row_V] + functions.shift_V[:, None]
    rows = {name: getattr(functions, name)[functions.row_V] for name in FUNCTION_ARRAYS[:5] if name != "knots_RJ"}
    own = BinFunctions(**rows, knots_RJ=knots_RJ, row_V=np.arange(8), shift_V=np.zeros(8))
    expected = interpolate_numpy(own, ids, logits)
    np.testing.assert_allclose(interpolate_numpy(functions, ids, logits), expected, atol=1e-12)
    found = table(torch.from_numpy(ids), torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_an_id_beyond_the_table_is_refused() -> None:
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        FunctionTable(draw_functions(0))(torch.tensor([4]), torch.zeros(1))
