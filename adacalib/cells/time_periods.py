"""Days of logit cells: which come before which, and which of them the fit never tells apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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

    It tells the earlier days from the later ones that step 8 holds out, and no others: two periods, one where there is
    a single day, none without rows. With each period as one day that split stays as it is.

    Args:
        columns: date (days as integers) and sum_weight of one field, in rows of any number per day.
    """
    parts = split_by_time(columns, 1 - HELD_OUT_SHARE) or (columns,)
    return np.array([part["date"].min() for part in parts if len(part["date"])], np.int64)


def merge_days(day: Ints, period_starts: Ints) -> Ints:
    """The first day of each day's period (`find_period_starts`, which gives one at or before every day)."""
    start: Ints = period_starts[np.searchsorted(period_starts, day, side="right") - 1]
    return start
