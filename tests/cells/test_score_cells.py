"""Score cells: by hand, against a plain count, what must not matter."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.score_cells import KeyedScoreCells, assign_score_cell, count_by_key, join_keyed

ROWS = st.lists(
    st.tuples(st.integers(0, 2**40), st.floats(0, 1), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 1)), max_size=40
)


def count(rows: list[tuple[int, float, float, int]]) -> KeyedScoreCells:
    key, score, weight, label = ([row[i] for row in rows] for i in range(4))
    return count_by_key(np.array(key, np.int64), np.array(score, float), np.array(weight, float), np.array(label, int))


def test_cell_by_hand() -> None:
    # logit .5 = 0 → 0; logit .25 = -ln 3 = -1.0986 · 512 = -562.5 → -563; 1 is clipped to logit 16.118 · 512 = 8252.5
    np.testing.assert_array_equal(assign_score_cell(np.array([0.5, 0.25, 1.0, 0.0])), [0, -563, 8252, -8253])


def test_counts_by_hand() -> None:
    cells = count([(4, 0.5, 2.0, 1), (3, 0.25, 1.0, 0), (4, 0.5, 1.0, 0), (4, 0.25, 0.5, 1)])
    np.testing.assert_array_equal(cells.key, [3, 4, 4])
    np.testing.assert_array_equal(cells.cell, [-563, -563, 0])
    np.testing.assert_array_equal(cells.weight, [1.0, 0.5, 3.0])
    np.testing.assert_array_equal(cells.response, [0.0, 0.5, 2.0])
    np.testing.assert_array_equal(cells.n_samples, [1, 1, 2])
    np.testing.assert_array_equal(cells.n_responses, [0, 1, 1])
    assert len(cells.select(cells.key == 4)) == 2


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(0, 40))
def test_joined_parts_are_the_whole_and_the_whole_is_a_plain_count(
    rows: list[tuple[int, float, float, int]], at: int
) -> None:
    joined, whole = join_keyed(count(rows[:at]), count(rows[at:])), count(rows)
    expected = Counter((key, _cell(score)) for key, score, _, _ in rows)
    for cells in (joined, whole):
        found = list(zip(cells.key.tolist(), cells.cell.tolist(), strict=True))
        assert found == sorted(set(found))
        assert Counter(dict(zip(found, cells.n_samples.tolist(), strict=True))) == expected
    np.testing.assert_allclose(joined.weight, whole.weight, rtol=1e-12)
    np.testing.assert_allclose(joined.response, whole.response, rtol=1e-12)
    np.testing.assert_array_equal(joined.n_responses, whole.n_responses)


def _cell(score: float) -> int:
    p = min(max(score, 1e-7), 1 - 1e-7)
    return math.floor((math.log(p) - math.log1p(-p)) * 512)


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        count_by_key(np.zeros(2, np.int64), np.full(3, 0.5), np.ones(2), np.zeros(2, np.int64))
