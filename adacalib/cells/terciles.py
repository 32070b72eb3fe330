"""Terciles of the un-calibrated logit inside each field value: where Field-RCE looks at a function's shape."""

from __future__ import annotations

import numpy as np

from adacalib.cells.bin_bounds import TIE
from adacalib.cells.logit_cells import Ints, LogitCells

N_TERCILES = 3
"""Low, middle and high third of a field value's samples, numbered from 0."""


class TercilesError(ValueError):
    """Cells that are not in their order."""


def assign_terciles(cells: LogitCells) -> Ints:
    """Assigns each logit cell to a third of its field value's samples: floor(3 · mid-rank / n).

    The mid-rank of a cell is the weight of the value's lower cells plus half its own weight, so it lies strictly
    between 0 and n, the value's weight. A cell is never split: a value whose samples share one cell lies in tercile
    1 as a whole, and a value with a heavy cell may lack a tercile.

    Args:
        cells: test cells of the un-calibrated logit, sorted by (field value id, cell); id 0 (unseen) may occur.

    Returns:
        Tercile 0, 1 or 2 per cell, never decreasing inside a value; shape (n_cells,).

    Raises:
        TercilesError: the cells are not sorted, or one occurs twice.
    """
    if not len(cells):
        return np.zeros(0, np.int64)
    _check_order(cells)
    first = np.searchsorted(cells.field_value_id, np.arange(cells.n_values))
    below = np.concatenate([[0.0], np.cumsum(cells.weight)])
    below_in_value = below[:-1] - below[first][cells.field_value_id]
    total = cells.sum_by_value(cells.weight)[cells.field_value_id]
    mid_rank = below_in_value + cells.weight / 2
    # a tie goes to the upper tercile
    tercile: Ints = np.clip((N_TERCILES * mid_rank / total + TIE).astype(np.int64), 0, N_TERCILES - 1)
    return tercile


def compute_tercile_starts(cells: LogitCells) -> tuple[Ints, Ints]:
    """Computes where terciles 1 and 2 begin, so that a row's tercile is (cell ≥ start_1) + (cell ≥ start_2).

    Args:
        cells: the cells that `assign_terciles` takes.

    Returns:
        start_1 and start_2, first cell index of tercile 1 and of tercile 2 per field value id; shape (n_values,).
        Where tercile 2 is empty, its start is one above the value's last cell; where tercile 1 is empty, its start
        is that of tercile 2. An id without cells has 0 in both: no row of the same samples asks for it.

    Raises:
        TercilesError: the cells are not sorted, or one occurs twice.
    """
    tercile = assign_terciles(cells)
    ids = np.arange(cells.n_values)
    first = np.searchsorted(cells.field_value_id, ids)
    end = np.searchsorted(cells.field_value_id, ids, side="right")
    beyond = np.zeros(cells.n_values, np.int64)
    has_cells = end > first
    beyond[has_cells] = cells.cell[end[has_cells] - 1] + 1
    starts = []
    for boundary in (1, 2):
        # terciles never decrease inside a value, so the cells below the boundary come first
        position = first + np.bincount(cells.field_value_id[tercile < boundary], minlength=cells.n_values)
        start = beyond.copy()
        inside = position < end
        start[inside] = cells.cell[position[inside]]
        starts.append(start)
    return starts[0], starts[1]


def _check_order(cells: LogitCells) -> None:
    step_value, step_cell = np.diff(cells.field_value_id), np.diff(cells.cell)
    wrong = np.flatnonzero((step_value < 0) | ((step_value == 0) & (step_cell <= 0)))
    if len(wrong):
        at = int(wrong[0])
        raise TercilesError(
            f"cell {cells.cell[at + 1]} of field value id {cells.field_value_id[at + 1]} comes after cell "
            f"{cells.cell[at]} of id {cells.field_value_id[at]}: merge_cells sorts and adds up cells"
        )
