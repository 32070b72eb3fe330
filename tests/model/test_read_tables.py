"""Tables that every rank reads as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.field_part import FieldFit, RobustSwitches, fit_field_part
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.model.read_tables import Columns, read_cells, read_columns
from adacalib.model.row_files import StreamError
from tests.model.calibrator_world import N_FIELD_VALUES, cell_columns, draw_rows, write_table

N_VALUES = N_FIELD_VALUES + 1
N_DAYS = 90


def write_cells(table: Path, columns: Columns, n_files: int, has_days: bool = True) -> None:
    """One row per sample, spread over files without order; as Spark writes them: days null without, the rest never."""
    days = pa.array(columns["date"].astype(np.int32)).cast(pa.date32()) if has_days else None
    rows = {"field": ["shop"] * len(columns["cell"]), **columns}
    rows["date"] = pa.nulls(len(columns["cell"]), pa.date32()) if days is None else days
    whole = pa.table(rows)
    other = whole.slice(0, 5).set_column(0, "field", pa.array(["town"] * 5))
    files = {f"part-{i}.parquet": whole.take(np.arange(i, len(whole), n_files)) for i in range(n_files)}
    files["part-0.parquet"] = pa.concat_tables([other, files["part-0.parquet"]])
    schema = pa.schema([own.with_nullable(own.name == "date") for own in whole.schema])
    write_table(table, {name: rows.cast(schema) for name, rows in files.items()})


def draw_columns() -> Columns:
    """A row per sample on one of 90 days; half of the field values turn round in time."""
    rows = draw_rows(8000)
    columns = cell_columns(rows) | {"date": np.random.default_rng(5).integers(0, N_DAYS, 8000)}
    turned = (columns["date"] < N_DAYS / 3) & (columns["field_value_id"] % 2 == 0)
    for name, total in (("n_responses", "n_samples"), ("sum_weight_responses", "sum_weight")):
        columns[name] = np.where(turned, columns[total] - columns[name], columns[name])
    return columns


def fit(columns: Columns) -> FieldFit:
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 5)
    return fit_field_part(columns, N_VALUES, bounds, RobustSwitches(), seed=1)


def test_a_fit_on_periods_is_the_fit_on_days(tmp_path: Path) -> None:
    columns = draw_columns()
    write_cells(tmp_path / "cells", columns, n_files=7)
    found = read_cells(tmp_path / "cells", "shop")
    periods = np.unique(found["date"])
    assert len(periods) == 2 < N_DAYS
    keys = np.stack([found[name] for name in ("date", "field_value_id", "cell")], axis=1)
    assert len(np.unique(keys, axis=0)) == len(keys) < 8000
    expected, actual = fit(columns), fit(found)
    assert actual.chosen == expected.chosen
    for name, value in expected.diagnostics.items():
        assert actual.diagnostics[name] == (None if value is None else pytest.approx(value, rel=1e-6)), name
    np.testing.assert_allclose(actual.level_V, expected.level_V, atol=1e-7)
    np.testing.assert_allclose(actual.functions.knots_RJ, expected.functions.knots_RJ, atol=1e-7)


@pytest.mark.parametrize("n_files", [1, 9])
def test_without_dates_cells_have_no_date(tmp_path: Path, n_files: int) -> None:
    columns = draw_columns()
    write_cells(tmp_path / "cells", columns, n_files, has_days=False)
    found = read_cells(tmp_path / "cells", "shop")
    assert "date" not in found
    expected = cells_from_columns(columns, N_VALUES)
    assert len(found["cell"]) == len(expected)  # one row each
    cells = cells_from_columns(found, N_VALUES)
    for name in ("field_value_id", "cell", "weight", "response", "logit", "n_samples", "n_responses"):
        np.testing.assert_allclose(getattr(cells, name), getattr(expected, name), rtol=1e-12)


def test_a_field_without_cells_has_no_rows(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells", draw_columns(), n_files=2)
    assert {len(values) for values in read_cells(tmp_path / "cells", "nothing").values()} == {0}


def test_null_numbers_are_nan(tmp_path: Path) -> None:
    rows = {"field": ["a", "a", "b"], "mean_logit": pa.array([None, 2.0, 3.0]), "n": [1, 2, 3], "name": ["x", "y", "z"]}
    write_table(tmp_path / "bins", {"part-0.parquet": pa.table(rows)})
    found = read_columns(tmp_path / "bins", "a")
    assert set(found) == {"mean_logit", "n"}
    np.testing.assert_array_equal(found["mean_logit"], [np.nan, 2.0])


@pytest.mark.parametrize("read", [read_columns, read_cells])
def test_a_table_without_files(tmp_path: Path, read: Callable[[Path, str], Columns]) -> None:
    write_table(tmp_path / "cells", {})
    with pytest.raises(StreamError, match=r"no Parquet file; run the stage that writes it again"):
        read(tmp_path / "cells", "shop")
