"""The comparison of tables can fail."""

from __future__ import annotations

import math

import pytest

from tests.assert_table import assert_table

ROWS = [{"k": 1, "x": 0.5, "a": [1.0, 2.0], "n": None}, {"k": 2, "x": 1.5, "a": [], "n": 3}]


def test_order_of_rows_and_columns_does_not_matter() -> None:
    assert_table([dict(reversed(row.items())) for row in reversed(ROWS)], ROWS, ["k"])


def test_tolerance_reaches_into_arrays() -> None:
    close = [{**ROWS[0], "a": [1.0, 2.0 + 1e-13]}, ROWS[1]]
    assert_table(close, ROWS, ["k"], rtol=1e-12)
    with pytest.raises(AssertionError, match=r"column a\[1\]"):
        assert_table(close, ROWS, ["k"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": math.nan}, "column x: nan, expected 0.5"),
        ({"x": None}, "column x: None, expected 0.5"),
        ({"x": 0.5001}, "column x"),
        ({"n": 0}, "column n: 0, expected None"),
        ({"a": [1.0]}, "column a: 1 elements, expected 2"),
        ({"k": 7}, "other keys"),
        ({"k": 2}, "not unique in the actual"),
        ({"more": 1}, "other columns"),
    ],
)
def test_every_difference_is_found(change: dict, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_table([{**ROWS[0], **change}, ROWS[1]], ROWS, ["k"], rtol=1e-6)


def test_missing_row_and_nan_on_both_sides_are_found() -> None:
    with pytest.raises(AssertionError, match="other keys"):
        assert_table(ROWS[:1], ROWS, ["k"])
    with pytest.raises(AssertionError, match="expected nan"):
        assert_table([{"k": 1, "x": math.nan}], [{"k": 1, "x": math.nan}], ["k"])
