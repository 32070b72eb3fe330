"""Days of logit cells: which come before which, and which of them the fit never tells apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from adacalib.cells.drift_evidence import assign_time_blocks
from adacalib.cells.logit_cells import Ints
from adacalib.cells.robust import HELD_OUT_SHARE

Columns = Mapping[str, npt.NDArray[Any]]


def split_by_time(columns: Columns, share: float) -> tuple[Columns, Columns] | None:
    """Cells of the earliest days, up to the day in which `share` of the weight is reached, and those of later days.

    None where there is only one day.
    """
    days, place = np.unique(columns["date"], return_inverse=True)
    if len(days) < 2:
        return None
    reached = np.cumsum(np.bincount(place, weights=columns["sum_weight"]))
    last = min(int(np.searchsorted(reached, share * reached[-1])), len(days) - 2)
    early = place <= last
    return {n: v[early] for n, v in columns.items()}, {n: v[~early] for n, v in columns.items()}


def find_period_starts(columns: Columns) -> Ints:
    """First days of the periods whose days the fit of the field part never tells apart, ascending.

    It tells days apart by the split by time of step 8 and by the time blocks of step 9, which are those of all cells,
    of the early ones, and of all folds but one. With each period as one day these splits and blocks stay as they are:
    a block is decided by a day's mid-rank, and that of a period lies between those of its first and its last day. At
    most 6 blocks of each make at most 6 · (2 + folds) + 1 periods, however many days there are.

    Args:
        columns: date (days as integers), fold and sum_weight of one field, in rows of any number per day and fold; no
            rows, no periods.
    """
    by_time = split_by_time(columns, 1 - HELD_OUT_SHARE)
    folds = np.unique(columns["fold"])
    parts = [columns, *(by_time or ())[:1]]
    if len(folds) > 1:
        parts += [{n: v[columns["fold"] != fold] for n, v in columns.items()} for fold in folds]
    starts = [] if by_time is None else [by_time[1]["date"].min()]
    for part in parts if len(folds) else ():
        block = assign_time_blocks(part["date"], part["sum_weight"])
        starts += [part["date"][block == b].min() for b in range(int(block.max()) + 1)]
    return np.unique(np.array(starts, np.int64))


def merge_days(day: Ints, period_starts: Ints) -> Ints:
    """The first day of each day's period (`find_period_starts`, which gives one at or before every day)."""
    start: Ints = period_starts[np.searchsorted(period_starts, day, side="right") - 1]
    return start
