"""Tables that every rank reads into memory as a whole: logit cells, and what is bounded by field values × bins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from adacalib.cells.logit_cells import Ints
from adacalib.cells.time_periods import find_period_starts, merge_days
from adacalib.model.row_files import StreamError, open_rows

Columns = dict[str, npt.NDArray[Any]]

_CELL_KEYS = ("date", "field_value_id", "cell")
_CELL_SUMS = ("n_samples", "n_responses", "sum_weight", "sum_weight_responses", "sum_weight_logit")


def read_columns(table: Path, field: str) -> Columns:
    """Columns of numbers of one field of a table that is bounded by field values × bins.

    Raises:
        StreamError: the table is missing, incomplete or without files.
    """
    return _to_columns(pa.concat_tables([_read_file(path, field) for path in _list_files(table)]))


def read_cells(table: Path, field: str) -> Columns:
    """Columns of logit_cells of one field, its days added up to those periods that the fit tells apart.

    One row per (period, field value, cell) that has samples: bounded by these, and no more than twice that and
    two files are in memory at a time. A period's date is its first day (`find_period_starts`), as days since 1970;
    without dates there is no such column.

    Raises:
        StreamError: the table is missing, incomplete or without files.
    """
    days = _to_columns(_add_up(table, field, ("date",), ("sum_weight",)))
    starts = find_period_starts(days) if "date" in days else None
    return _to_columns(_add_up(table, field, _CELL_KEYS, _CELL_SUMS, starts))


def _add_up(
    table: Path, field: str, keys: Sequence[str], sums: Sequence[str], period_starts: Ints | None = None
) -> pa.Table:
    """Sums by keys, file by file: what has been read is added up whenever it has doubled."""
    parts: list[pa.Table] = []
    for path in _list_files(table):
        rows = _read_file(path, field, [*keys, *sums])
        if period_starts is not None:
            merged = merge_days(rows["date"].to_numpy(), period_starts)
            rows = rows.set_column(rows.schema.get_field_index("date"), "date", pa.array(merged))
        parts.append(rows)
        if sum(map(len, parts[1:])) > len(parts[0]):
            parts = [_group(parts, keys, sums)]
    return _group(parts, keys, sums)


def _group(parts: Sequence[pa.Table], keys: Sequence[str], sums: Sequence[str]) -> pa.Table:
    grouped = pa.concat_tables(parts, promote_options="default").group_by(
        list(keys), use_threads=False
    )  # with them the order would vary
    added = grouped.aggregate([(name, "sum") for name in sums])
    return added.select([*keys, *(f"{name}_sum" for name in sums)]).rename_columns([*keys, *sums])


def _list_files(table: Path) -> tuple[str, ...]:
    paths = open_rows(table).paths
    if not paths:
        raise StreamError(f"{table}: it has no Parquet file; run the stage that writes it again")
    return paths


def _read_file(path: str, field: str, columns: list[str] | None = None) -> pa.Table:
    """One field's rows of a file; dates as days since 1970."""
    rows = pq.read_table(path, columns=columns, partitioning=None, filters=[("field", "=", field)])
    days = [place for place, own in enumerate(rows.schema) if pa.types.is_date(own.type)]
    for place in days:
        rows = rows.set_column(place, rows.column_names[place], rows[place].cast(pa.int32()))
    return rows


def _to_columns(rows: pa.Table) -> Columns:
    """The columns of numbers, null as NaN; date is left out where it is null, as in a run without dates."""
    numbers = [own.name for own in rows.schema if pa.types.is_integer(own.type) or pa.types.is_floating(own.type)]
    has_days = "date" in numbers and rows["date"].null_count == 0
    return {name: np.asarray(rows[name].to_numpy()) for name in numbers if name != "date" or has_days}
