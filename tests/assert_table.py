"""Comparison of tables that cannot be fooled by NaN, by null or by what is inside an array.

`pyspark.testing.assertDataFrameEqual` passes NaN against 1.0, and chispa's approximate equality is exact inside
arrays; here every number must be finite, null equals only null, and one tolerance holds at every depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]


def collect_rows(table: DataFrame | pa.Table | Iterable[Mapping[str, Any]], key: Sequence[str] = ()) -> Rows:
    """Rows as dictionaries, nulls as None; sorted by key (null first) where there is one."""
    if isinstance(table, DataFrame):
        table = table.toArrow()
    rows = table.to_pylist() if isinstance(table, pa.Table) else [dict(row) for row in table]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in key])


def assert_table(
    actual: DataFrame | pa.Table | Iterable[Mapping[str, Any]],
    expected: DataFrame | pa.Table | Iterable[Mapping[str, Any]],
    key: Sequence[str],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Same columns and same rows, whatever their order.

    Args:
        key: columns that are unique in both tables.
        rtol, atol: tolerance of floating-point numbers as in numpy.testing.assert_allclose; everything else is exact.
    """
    found, wanted = collect_rows(actual, key), collect_rows(expected, key)
    keys = [[tuple(row[name] for name in key) for row in rows] for rows in (found, wanted)]
    for name, values in zip(("actual", "expected"), keys, strict=True):
        assert len(set(values)) == len(values), f"key {list(key)} is not unique in the {name} table"
    assert keys[0] == keys[1], f"other keys {list(key)}"
    for place, ours, theirs in zip(keys[1], found, wanted, strict=True):
        assert sorted(ours) == sorted(theirs), f"{place}: other columns"
        for name in theirs:
            _assert_value(ours[name], theirs[name], rtol, atol, f"row {place}, column {name}")


def _assert_value(actual: Any, expected: Any, rtol: float, atol: float, where: str) -> None:
    if isinstance(expected, list | tuple):
        assert isinstance(actual, list | tuple), f"{where}: {actual!r} is no array"
        assert len(actual) == len(expected), f"{where}: {len(actual)} elements, expected {len(expected)}"
        for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            _assert_value(ours, theirs, rtol, atol, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert isinstance(actual, float | int), f"{where}: {actual!r}, expected {expected!r}"
        assert math.isfinite(actual) and math.isfinite(expected), f"{where}: {actual!r}, expected {expected!r}"
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=where)
    else:
        assert actual == expected, f"{where}: {actual!r}, expected {expected!r}"
