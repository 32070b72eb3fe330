from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import BinBounds, merge_equal_bounds
from adacalib.cells.functions import FieldValueIdError, build_functions, interpolate, list_segments
from tests import oracle


def ids(*values):
    return np.array(values, np.int64)


def test_interpolate_by_hand():
    # id 0: bounds 0, 1, 3 and knots 0, 2, 3: slopes 2 and .5; id 1: bounds 0, 1 (padded), knots 0, .001: slope .001
    bounds = BinBounds(np.array([[0, 1, 3.0], [0, 1, np.inf]]), np.array([2, 1]))
    functions = build_functions(bounds, np.array([[0, 2, 3.0], [0, 0.001, 77]]))
    assert functions.knots_RJ.tolist() == [[0, 2, 3], [0, 0.001, 0.001]]
    assert functions.slope_lower_R.tolist() == [2, 0.02]  # the second clipped from .001
    assert functions.slope_upper_R.tolist() == [0.5, 0.02]
    found = interpolate(functions, ids(0, 0, 0, 0, 0, 1, 1, 1), np.array([-1, 0, 0.5, 2, 5, -1, 0.5, 2.0]))
    # -1: 0 - 2; .5: 1; 2: 2 + .5; 5: 3 + .5·2; then 0 - .02, .0005, .001 + .02
    np.testing.assert_allclose(found, [-2, 0, 1, 2.5, 4, -0.02, 0.0005, 0.021], atol=1e-15)


def test_steep_edges_are_clipped_outside_only():
    functions = build_functions(BinBounds(np.array([[0, 1.0]]), np.array([1])), np.array([[0, 10.0]]))
    np.testing.assert_allclose(interpolate(functions, ids(0, 0, 0), np.array([-1, 0.5, 2])), [-4, 5, 14])


rows = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=7)


@st.composite
def some_functions(draw):
    bounds = np.sort(np.array([draw(rows.map(lambda r: (r * 7)[:7])) for _ in range(3)]), axis=1)
    merged = merge_equal_bounds(np.round(bounds * 32) / 32)
    rises = np.array([draw(st.lists(st.floats(0, 3), min_size=7, max_size=7)) for _ in range(3)])
    return build_functions(merged, np.cumsum(rises, axis=1) - 5)


def test_shared_curve_by_hand():
    # one curve through (0, 0), (1, 2), (2, 3), slopes 2 and 1 beyond; ids 0 and 1 share it, id 1 lies 10 higher
    own = build_functions(BinBounds(np.array([[0.0, 1, 2]]), np.array([2])), np.array([[0.0, 2, 3]]))
    shared = replace(own, row_V=ids(0, 0), shift_V=np.array([0.0, 10.0]))
    assert (own.n_values, shared.n_values) == (1, 2)
    found = interpolate(shared, ids(0, 0, 0, 1, 1, 1), np.array([-1, 0.5, 3, -1, 0.5, 3]))
    np.testing.assert_allclose(found, [-2, 1, 4, 8, 11, 14])
    with pytest.raises(FieldValueIdError, match="0 to 1"):
        interpolate(shared, ids(2), np.zeros(1))


@settings(max_examples=60, deadline=None)
@given(some_functions(), st.lists(st.tuples(st.integers(0, 2), st.floats(-20, 20)), min_size=1, max_size=20))
def test_interpolate_is_the_oracles(functions, samples):
    field_value_id, logit = ids(*(i for i, _ in samples)), np.array([s for _, s in samples])
    expected = [
        oracle.piecewise_linear(
            functions.bin_bounds_RJ[i, : functions.n_bins_R[i] + 1].tolist(),
            functions.knots_RJ[i].tolist(),
            functions.slope_lower_R[i],
            functions.slope_upper_R[i],
            s,
        )
        for i, s in samples
    ]
    np.testing.assert_allclose(interpolate(functions, field_value_id, logit), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(some_functions())
def test_functions_are_continuous_and_monotone(functions):
    for i in range(3):
        bounds = functions.bin_bounds_RJ[i, : functions.n_bins_R[i] + 1]
        below, at = (
            interpolate(functions, np.full(len(bounds), i), logit) for logit in (np.nextafter(bounds, -np.inf), bounds)
        )
        np.testing.assert_allclose(below, at, atol=1e-9)
        np.testing.assert_allclose(at, functions.knots_RJ[i, : len(bounds)], atol=1e-12)
        line = np.sort(np.concatenate([np.linspace(-20, 20, 200), bounds]))
        assert np.all(np.diff(interpolate(functions, np.full(len(line), i), line)) >= -1e-9)


def test_an_unknown_id_is_refused():
    functions = build_functions(BinBounds(np.array([[0, 1.0]]), np.array([1])), np.array([[0, 1.0]]))
    with pytest.raises(FieldValueIdError, match="from 0 to 1, but the functions know 0 to 0: give unseen values"):
        interpolate(functions, ids(0, 1), np.zeros(2))
    with pytest.raises(FieldValueIdError, match="from -1"):
        interpolate(functions, ids(-1), np.zeros(1))
    assert interpolate(functions, ids(), np.zeros(0)).shape == (0,)


def test_segments_by_hand():
    # (0, 0), (1, 2), (3, 3) with slopes 2 and .5; one bin of slope .001 (edges .02) padded to two
    bounds = BinBounds(np.array([[0, 1, 3.0], [0, 1, np.inf]]), np.array([2, 1]))
    functions = build_functions(bounds, np.array([[0, 2, 3.0], [0, 0.001, 77]]))
    found = list_segments(replace(functions, shift_V=np.array([0.0, 10.0])))
    assert found.bound_VJ.tolist() == [[0, 1, 3], [0, 1, np.inf]]
    np.testing.assert_allclose(found.slope_VS, [[2, 2, 0.5, 0.5], [0.02, 0.001, 0.02, 0.02]])
    np.testing.assert_allclose(found.intercept_VS, [[0, 0, 1.5, 1.5], [10, 10, 9.981, 9.981]])


@settings(max_examples=60, deadline=None)
@given(some_functions(), st.lists(st.tuples(st.integers(0, 2), st.floats(-20, 20)), min_size=1, max_size=20))
def test_segments_are_the_functions(functions, samples):
    # rows shared and shifted, so that each of the three ids has another curve than its own
    shared = replace(functions, row_V=ids(2, 0, 0), shift_V=np.array([0.5, -1.0, 2.0]))
    field_value_id, logit = ids(*(i for i, _ in samples)), np.array([s for _, s in samples])
    segments = list_segments(shared)
    number = np.sum(logit[:, None] >= segments.bound_VJ[field_value_id], axis=1)
    found = segments.intercept_VS[field_value_id, number] + segments.slope_VS[field_value_id, number] * logit
    np.testing.assert_allclose(found, interpolate(shared, field_value_id, logit), rtol=1e-9, atol=1e-9)
