"""adacalib/cells/logit_cells.py (the table of the same name is tests/stats/test_logit_cells.py's)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.logit_cells import (
    CELLS_PER_LOGIT,
    LOGIT_LIMIT,
    LogitCells,
    cells_from_columns,
    join_cells,
    merge_cells,
    pool_values,
)
from tests.cells.small_world import some_cells

COLUMNS = ("field_value_id", "cell", "weight", "response", "logit", "n_samples", "n_responses")


def assert_equal_cells(actual: LogitCells, expected: LogitCells) -> None:
    assert actual.n_values == expected.n_values
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-12, atol=1e-12)


def split_in_two(cells: LogitCells, seed: int) -> list[LogitCells]:
    mask = np.random.default_rng(seed).random(len(cells)) < 0.5
    return [cells.select(mask), cells.select(~mask)]


def test_merge_by_hand():
    # rows (1, 5), (0, 2), (1, 5): two cells; cell (1, 5) has weight 2 + 6 = 8, Σ w·logit = .4 + 1.2, mean .2
    cells = merge_cells(
        field_value_id=np.array([1, 0, 1]),
        cell=np.array([5, 2, 5]),
        weight=np.array([2.0, 1.0, 6.0]),
        response=np.array([2.0, 0.0, 3.0]),
        weighted_logit=np.array([0.4, 0.07, 1.2]),
        n_samples=np.array([1, 1, 3]),
        n_responses=np.array([1, 0, 2]),
        n_values=3,
    )
    assert len(cells) == 2
    assert cells.field_value_id.tolist() == [0, 1]
    assert cells.cell.tolist() == [2, 5]
    np.testing.assert_allclose(cells.weight, [1, 8])
    np.testing.assert_allclose(cells.response, [0, 5])
    np.testing.assert_allclose(cells.logit, [0.07, 0.2])
    assert cells.n_samples.tolist() == [1, 4]
    assert cells.n_responses.tolist() == [0, 3]
    # id 2 has no cells
    np.testing.assert_allclose(cells.sum_by_value(cells.response), [0, 5, 0])


def test_the_grid_and_the_limit_are_the_papers_and_the_houses():
    assert CELLS_PER_LOGIT == 32
    assert pytest.approx(np.log(1 - 1e-7) - np.log(1e-7), rel=1e-12) == LOGIT_LIMIT


def test_columns_of_any_date_are_added_up_like_the_oracles_dictionary():
    rng = np.random.default_rng(8)
    n = 500
    columns = {
        "field_value_id": rng.integers(1, 5, n).astype(np.int32),
        "cell": rng.integers(-3, 3, n).astype(np.int32),
        "date": rng.integers(0, 9, n),
        "n_samples": rng.integers(1, 9, n),
        "n_responses": rng.integers(0, 2, n),
        "sum_weight": rng.uniform(1, 2, n),
        "sum_weight_responses": rng.uniform(0, 1, n),
        "sum_weight_logit": rng.normal(size=n),
    }
    sums: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(5))
    names = ("sum_weight", "sum_weight_responses", "sum_weight_logit", "n_samples", "n_responses")
    for row in range(n):
        key = (int(columns["field_value_id"][row]), int(columns["cell"][row]))
        sums[key] += [float(columns[name][row]) for name in names]
    cells = cells_from_columns(columns, n_values=7)
    assert list(zip(cells.field_value_id.tolist(), cells.cell.tolist(), strict=True)) == sorted(sums)
    expected = np.array([sums[key] for key in sorted(sums)])
    np.testing.assert_allclose(cells.weight, expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(cells.response, expected[:, 1], rtol=1e-12)
    np.testing.assert_allclose(cells.logit, expected[:, 2] / expected[:, 0], rtol=1e-9, atol=1e-12)
    assert cells.n_samples.tolist() == expected[:, 3].tolist()
    assert cells.n_responses.tolist() == expected[:, 4].tolist()
    assert cells.n_values == 7


@settings(max_examples=30, deadline=None)
@given(some_cells(), st.integers(0, 5))
def test_parts_joined_in_any_order_are_the_whole(cells, seed):
    parts = split_in_two(cells, seed)
    assert_equal_cells(join_cells(parts), cells)
    assert_equal_cells(join_cells(parts[::-1]), cells)
    # a part given twice equals weight 2: same means, twice the sums
    double = join_cells([cells, cells])
    np.testing.assert_allclose(double.weight, 2 * cells.weight)
    np.testing.assert_allclose(double.logit, cells.logit, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(some_cells())
def test_pooling_keeps_every_total_and_has_one_cell_per_slice(cells):
    pooled = pool_values(cells)
    assert pooled.n_values == 1
    assert pooled.cell.tolist() == sorted(set(cells.cell.tolist()))
    assert not pooled.field_value_id.any()
    for name in ("weight", "response", "n_samples", "n_responses"):
        assert getattr(pooled, name).sum() == pytest.approx(getattr(cells, name).sum())
    assert np.sum(pooled.weight * pooled.logit) == pytest.approx(np.sum(cells.weight * cells.logit), abs=1e-9)


def test_no_rows_give_no_cells():
    nothing = np.zeros(0)
    ids = np.zeros(0, np.int64)
    cells = merge_cells(ids, ids, nothing, nothing, nothing, ids, ids, n_values=3)
    assert len(cells) == len(pool_values(cells)) == len(join_cells([cells, cells])) == 0
    assert cells.sum_by_value(nothing).tolist() == [0, 0, 0]


def test_columns_of_different_lengths_are_refused():
    ids, ones = np.zeros(2, np.int64), np.ones(2)
    with pytest.raises(IndexError, match="index 1 is out of bounds"):
        merge_cells(ids, ids, np.ones(1), ones, ones, ids, ids, n_values=1)


def test_a_missing_column_is_named():
    with pytest.raises(KeyError, match="cell"):
        cells_from_columns({"field_value_id": np.zeros(1)}, n_values=1)
