"""Days of logit cells: the split by time, and the periods whose days are never told apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
    # 20 days of weight 1: 70 % is reached on day 13, so 14 is the first late one
    columns = {"date": np.arange(20)[::-1] + 100, "sum_weight": np.ones(20)}
    starts = find_period_starts(columns)
    assert starts.tolist() == [100, 114]
    assert merge_days(np.array([100, 101, 119, 114, 113]), starts).tolist() == [100, 100, 114, 114, 100]


def test_no_rows_no_periods_and_one_day_one_period():
    nothing = np.array([], np.int64)
    assert find_period_starts({"date": nothing, "sum_weight": nothing}).tolist() == []
    assert merge_days(nothing, nothing).tolist() == []
    assert find_period_starts({"date": np.array([5, 5]), "sum_weight": np.ones(2)}).tolist() == [5]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 50)), min_size=1, max_size=150))
def test_a_period_for_its_days_changes_no_split(rows):
    day, weight = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"date": day, "sum_weight": weight.astype(float), "row": np.arange(len(day))}
    starts = find_period_starts(columns)
    assert len(starts) == min(2, len(set(day)))
    merged = columns | {"date": merge_days(day, starts)}
    assert set(merged["date"]) == set(starts)
    by_time, merged_by_time = (split_by_time(own, 1 - HELD_OUT_SHARE) for own in (columns, merged))
    assert (by_time is None) == (merged_by_time is None) == (len(starts) == 1)
    for own, other in zip(by_time or (), merged_by_time or (), strict=True):
        assert own["row"].tolist() == other["row"].tolist()
