"""Terciles inside each field value: by hand, against the oracle, and through the starts that Spark uses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.logit_cells import LogitCells, merge_cells
from adacalib.cells.terciles import TercilesError, assign_terciles, compute_tercile_starts
from tests import oracle_metrics as oracle


def make_cells(triples: list[tuple[int, int, float]], n_values: int) -> LogitCells:
    """Cells from (field value id, cell, weight), in any order; no positives."""
    value, cell, weight = (np.array(column) for column in zip(*triples, strict=True))
    n = np.ones(len(cell), np.int64)
    return merge_cells(
        value.astype(np.int64),
        cell.astype(np.int64),
        weight.astype(float),
        0.0 * weight,
        0.0 * weight,
        n,
        0 * n,
        n_values,
    )


TRIPLES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-20, 20), st.sampled_from([0.5, 1.0, 2.0, 3.0, 17.0])),
    min_size=1,
    max_size=60,
)


def test_by_hand() -> None:
    # value 0, n = 6, cells of weight 1, 2, 2, 1: mid-ranks .5, 2, 4, 5.5; times 3/6: .25, 1, 2, 2.75
    # value 2, one cell of weight 7: mid-rank 3.5, times 3/7: 1.5, the middle as a whole
    # value 3, n = 10, weights 1, 9: mid-ranks .5, 5.5; times 3/10: .15, 1.65
    cells = make_cells([(0, -3, 1), (0, 0, 2), (0, 4, 2), (0, 9, 1), (2, 5, 7), (3, -1, 1), (3, 0, 9)], n_values=5)
    np.testing.assert_array_equal(assign_terciles(cells), [0, 1, 2, 2, 1, 0, 1])
    start_1, start_2 = compute_tercile_starts(cells)
    # no tercile 2 in values 2 and 3: one above their last cell; ids 1 and 4 have no cells
    np.testing.assert_array_equal(start_1, [0, 0, 5, 0, 0])
    np.testing.assert_array_equal(start_2, [4, 0, 6, 1, 0])


def test_empty_tercile_1_starts_where_tercile_2_does() -> None:
    # weights 1, 1 of n = 2: mid-ranks .5, 1.5; times 3/2: .75, 2.25: nothing in the middle
    start_1, start_2 = compute_tercile_starts(make_cells([(0, 10, 1), (0, 11, 1)], n_values=1))
    assert start_1[0] == start_2[0] == 11


def test_no_cells() -> None:
    cells = make_cells([(0, 1, 1)], n_values=2).select(np.array([False]))
    assert len(assign_terciles(cells)) == 0
    for starts in compute_tercile_starts(cells):
        np.testing.assert_array_equal(starts, [0, 0])


@settings(deadline=None, max_examples=60)
@given(TRIPLES)
def test_same_as_oracle_from_rows(triples: list[tuple[int, int, float]]) -> None:
    rows = [{"value": value, "cell": cell, "weight": weight} for value, cell, weight in triples]
    cells = make_cells(triples, n_values=5)
    by_cell = dict(
        zip(zip(cells.field_value_id.tolist(), cells.cell.tolist(), strict=True), assign_terciles(cells), strict=True)
    )
    assert [by_cell[row["value"], row["cell"]] for row in rows] == oracle.tercile_of_each_row(rows)


@settings(deadline=None, max_examples=60)
@given(TRIPLES)
def test_starts_give_back_the_terciles(triples: list[tuple[int, int, float]]) -> None:
    cells = make_cells(triples, n_values=5)
    start_1, start_2 = compute_tercile_starts(cells)
    ids = cells.field_value_id
    by_starts = (cells.cell >= start_1[ids]).astype(int) + (cells.cell >= start_2[ids])
    np.testing.assert_array_equal(by_starts, assign_terciles(cells))


@pytest.mark.parametrize("order", [[1, 0], [0, 0]])
def test_unsorted_or_repeated_cells_are_refused(order: list[int]) -> None:
    cells = make_cells([(0, 10, 1), (0, 11, 1)], n_values=1)
    disordered = cells.select(np.array(order))  # an index array reorders as a mask selects
    for function in (assign_terciles, compute_tercile_starts):
        with pytest.raises(TercilesError, match=r"cell 10 of field value id 0 comes after cell 1[01] of id 0"):
            function(disordered)
