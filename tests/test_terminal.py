"""The table of metrics on the terminal."""

from __future__ import annotations

import copy
import io
import re
from typing import Any

from rich.console import Console
from rich.table import Table

from adacalib.terminal import make_metrics_tables, show


def make_methods(**adacalib: Any) -> dict[str, Any]:
    values = {
        "field_rce": 0.17,
        "field_rce_noise_floor": 0.0161,
        "field_rce_attainable": 0.0202,
        "field_rce_terciles": 0.2,
        "field_rce_terciles_noise_floor": 0.031,
        "field_rce_terciles_attainable": 0.037,
        "log_loss": 0.51234,
        "auc": 0.61,
        "field_auc": 0.6,
        "pcoc": 1.01,
    }
    names = ("uncalibrated", "isotonic", "isotonic_offset")
    return {name: copy.copy(values) for name in names} | {"adacalib": values | adacalib}


def make_metrics(**adacalib: Any) -> dict[str, Any]:
    return {
        "field": "carrier",
        "n_test": 65000,
        "n_fit": 261000,
        "reference_score": "isotonic_offset",
        "methods": make_methods(**adacalib),
        "other_fields": {"dest": make_methods(field_rce=0.0443)},
    }


def render(table: Table, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(table)
    return console.file.getvalue()


def read_cells(row: str) -> list[str]:
    return re.split(r"\s{2,}", row.strip())


def test_table_has_each_method_and_the_floors_below() -> None:
    text = render(make_metrics_tables(make_metrics(field_rce=0.0221))[0])
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1:] == ["0.0221", "0.2000", "0.51234", "0.6000", "0.6100", "1.0100"]
    assert "carrier: 65,000 test samples, calibrated on 261,000" in text
    assert "Field-RCE: noise floor 0.0161, attainable 0.0202" in text
    assert "Field-RCE terciles: noise floor 0.0310, attainable 0.0370" in text
    assert all(name in text for name in ("un-calibrated", "isotonic + offset", "isotonic_offset"))


def test_undefined_metric_shows_as_a_dash() -> None:
    text = render(make_metrics_tables(make_metrics(field_rce=None, field_rce_attainable=None))[0])
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1] == "–"
    assert "attainable –" in text
    assert show(None, 4) == "–"


def test_other_fields_have_the_same_table() -> None:
    first, other = make_metrics_tables(make_metrics())
    text = render(other)
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1:] == ["0.0443", "0.2000", "0.51234", "0.6000", "0.6100", "1.0100"]
    assert "dest: evaluated only" in text and "noise floor 0.0161" in text
    assert "carrier" in render(first)


def test_no_other_fields_no_table() -> None:
    assert len(make_metrics_tables(make_metrics() | {"other_fields": {}})) == 1


def test_fits_80_columns() -> None:
    assert max(map(len, render(make_metrics_tables(make_metrics())[0], width=80).splitlines())) <= 80
    assert "Field-AUC" in render(make_metrics_tables(make_metrics())[0], width=80)
