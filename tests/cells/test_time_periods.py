"""Days of logit cells: the split by time, and the periods whose days are never told apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.drift_evidence import assign_time_blocks
from adacalib.cells.robust import HELD_OUT_SHARE
from adacalib.cells.time_periods import find_period_starts, merge_days, split_by_time


def test_split_by_time_by_hand():
    # 2, 5, 1, 2 samples on days 3, 4, 8, 9; 70 % of 10 is reached on day 4
    columns = {"date": np.array([9, 3, 4, 8]), "sum_weight": np.array([2, 2, 5, 1])}
    early, late = split_by_time(columns, 0.7)
    assert early["date"].tolist() == [3, 4]
    assert late["date"].tolist() == [9, 8]
    # the last day is always held out, even where the share is reached on it only
    early, late = split_by_time({"date": np.array([1, 2]), "sum_weight": np.array([1, 9])}, 0.7)
    assert (early["date"].tolist(), late["date"].tolist()) == ([1], [2])
    assert split_by_time({"date": np.array([5, 5]), "sum_weight": np.array([1, 9])}, 0.7) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 50)), min_size=1, max_size=30), st.floats(0.1, 0.9))
def test_split_by_time_cuts_between_days_and_loses_nothing(rows, share):
    days, counts = (np.array(column) for column in zip(*rows, strict=True))
    parts = split_by_time({"date": days, "sum_weight": counts}, share)
    if len(set(days)) == 1:
        assert parts is None
        return
    early, late = parts
    assert len(early["date"]) > 0 and len(late["date"]) > 0
    assert early["date"].max() < late["date"].min()
    assert early["sum_weight"].sum() + late["sum_weight"].sum() == counts.sum()
    # no day less would have reached the share
    before_last = early["sum_weight"][early["date"] < early["date"].max()].sum()
    assert before_last < share * counts.sum() + 1e-9


def test_periods_by_hand():
    # 20 days of weight 1, one fold: blocks of all 20 start where 6 · (day + .5) / 20 reaches a whole number, on days
    # 0, 3, 7, 10, 13, 17; 70 % is reached on day 13, so 14 is the first late one; blocks of the first 14 days start
    # where 6 · (day + .5) / 14 does: 0, 2, 5 (5.5 / 14 · 6 = 2.36), 7 (3.21), 9 (4.07), 12 (5.36)
    columns = {"date": np.arange(20)[::-1], "fold": np.zeros(20, int), "sum_weight": np.ones(20)}
    starts = find_period_starts(columns)
    assert starts.tolist() == [0, 2, 3, 5, 7, 9, 10, 12, 13, 14, 17]
    assert merge_days(np.array([0, 1, 2, 19, 13, 11]), starts).tolist() == [0, 0, 2, 17, 13, 10]


def test_no_rows_no_periods_and_one_day_one_period():
    nothing = np.array([], np.int64)
    assert find_period_starts({"date": nothing, "fold": nothing, "sum_weight": nothing}).tolist() == []
    assert merge_days(nothing, nothing).tolist() == []
    assert find_period_starts({"date": np.array([5, 5]), "fold": np.arange(2), "sum_weight": np.ones(2)}).tolist() == [
        5
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=150),
    st.integers(1, 4),
)
def test_a_period_for_its_days_changes_no_split_and_no_block(rows, n_folds):
    day, fold, weight = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"date": day, "fold": fold % n_folds, "sum_weight": weight.astype(float), "row": np.arange(len(day))}
    starts = find_period_starts(columns)
    assert len(starts) <= 6 * (2 + n_folds) + 1
    merged = columns | {"date": merge_days(day, starts)}
    parts, merged_parts = [columns], [merged]
    by_time, merged_by_time = (split_by_time(own, 1 - HELD_OUT_SHARE) for own in (columns, merged))
    assert (by_time is None) == (merged_by_time is None)
    if by_time is not None:
        for own, other in zip(by_time, merged_by_time, strict=True):
            assert own["row"].tolist() == other["row"].tolist()
        parts, merged_parts = [*parts, by_time[0]], [*merged_parts, merged_by_time[0]]
    for rest in range(n_folds):
        kept = columns["fold"] != rest
        if kept.any():
            parts.append({n: v[kept] for n, v in columns.items()})
            merged_parts.append({n: v[kept] for n, v in merged.items()})
    for own, other in zip(parts, merged_parts, strict=True):
        blocks = [assign_time_blocks(one["date"], one["sum_weight"]).tolist() for one in (own, other)]
        assert blocks[0] == blocks[1]
