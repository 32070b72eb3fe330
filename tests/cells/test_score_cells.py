"""Score cells: by hand, against a plain formula, and how many there can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.score_cells import assign_score_cell, count_score_cells


def test_cell_by_hand() -> None:
    # logit .5 = 0 → 0; logit .25 = -ln 3 = -1.0986 · 512 = -562.5 → -563; 1 is clipped to logit 16.118 · 512 = 8252.5
    np.testing.assert_array_equal(assign_score_cell(np.array([0.5, 0.25, 1.0, 0.0]), 512), [0, -563, 8252, -8253])
    np.testing.assert_array_equal(assign_score_cell(np.array([0.5, 0.25, 1.0, 0.0]), 1), [0, -2, 16, -17])


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1 - 1e-6), st.sampled_from([1, 32, 512, 2**20]))
def test_cells_keep_the_order_of_scores(first: float, second: float, cells_per_logit: int) -> None:
    low, high = sorted((first, second))
    cells = assign_score_cell(np.array([low, high]), cells_per_logit)
    assert cells[0] <= cells[1]
    expected = [(math.log(p) - math.log1p(-p)) * cells_per_logit for p in (low, high)]
    np.testing.assert_allclose(cells + 0.5, expected, atol=0.5 + 1e-3)


@pytest.mark.parametrize("cells_per_logit", [1, 128, 512, 2**20])
def test_all_cells_have_room(cells_per_logit: int) -> None:
    # by hand at 1: logits within ±16.118, so cells -17 … 16
    assert count_score_cells(1) == 34
    cells = assign_score_cell(np.array([0.0, 1.0]), cells_per_logit)
    half = count_score_cells(cells_per_logit) // 2
    assert cells.tolist() == [-half, half - 1]
