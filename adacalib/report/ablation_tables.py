"""Tables and sentence of an ablation: the paper's Table 2, and every part of robust mode."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from adacalib.report.comparison_data import (
    Column,
    Document,
    average,
    compute_spread,
    is_significant,
    list_columns,
    subtract,
)
from adacalib.report.comparison_tables import make_mean_cell, make_seconds_cell
from adacalib.report.numbers import show, show_signed
from adacalib.report.tables import Cell, Table

FULL = {"paper": "paper_full", "robust": "robust_full"}
"""Mode → the row that its other rows are held against."""

_TAKEN_ALONG = {
    "robust_no_level": "Without levels the re-level is one intercept for all field values.",
    "robust_no_bin_shift": "Without bin shifts there is no shrinkage either: knots lie on the value's moved curve.",
}
"""Row → what else goes with the part that it takes out."""

UNIT = 1e-5
"""Of differences in LogLoss."""


def list_rows(document: Document, mode: str) -> list[str]:
    """Rows of one mode, the full calibrator first.

    Args:
        document: ablate.json.
        mode: a key of FULL.
    """
    return [name for name in document["labels"] if name.startswith(f"{mode}_")]


def subtract_full(document: Document, name: str) -> list[float | None]:
    """LogLoss of a row minus that of the full calibrator of its mode, per seed, in UNIT."""
    full = FULL[name.split("_")[0]]
    differences = subtract(document["methods"][name]["log_loss"], document["methods"][full]["log_loss"])
    return [None if value is None else value / UNIT for value in differences]


def make_ablation_table(document: Document, mode: str) -> Table:
    """A row per variant: mean and standard deviation over seeds, and the paired difference in LogLoss.

    Args:
        document: ablate.json.
        mode: paper (Table 2: each row takes one part more out) or robust (one part at a time).
    """
    columns = list_ablation_columns(document)
    rows = [_make_row(document, name, columns) for name in list_rows(document, mode)]
    headings = ["variant"]
    for column in columns:
        headings += [column.heading, *(["Δ LogLoss, 1e-5"] if column.metric == "log_loss" else [])]
    return Table(headings, rows, frozenset({0}), _make_note(document) if mode == "robust" else "")


def list_ablation_columns(document: Document) -> list[Column]:
    """The columns shown: AUC, which hardly moves with a part, is left to Field-AUC."""
    return [column for column in list_columns(document) if column.metric != "auc"]


def describe_levels(document: Document) -> str:
    """Noise floor and attainable level of Field-RCE and its terciles, means over seeds, in words."""
    parts = []
    for name, suffix in (("Field-RCE", ""), ("Field-RCE terciles", "_terciles")):
        floor, attainable = (average(document[f"{key}{suffix}"]) for key in ("noise_floor", "attainable"))
        parts.append(f"{name}: noise floor {show(floor, 4)}, attainable {show(attainable, 4)}")
    return "; ".join(parts) + "."


def _make_row(document: Document, name: str, columns: Sequence[Column]) -> list[Cell]:
    cells = [Cell(document["labels"][name], is_number=False)]
    for column in columns:
        values = document["methods"][name][column.metric]
        is_time = column.metric == "fit_seconds"
        cells.append(make_seconds_cell(values) if is_time else make_mean_cell(values, column.digits))
        if column.metric == "log_loss":
            cells.append(_make_difference_cell(document, name))
    return cells


def _make_difference_cell(document: Document, name: str) -> Cell:
    if name in FULL.values():
        return Cell("")
    differences = subtract_full(document, name)
    mark = "*" if is_significant(document["p_value_log_loss"][name]) else ""
    spread = compute_spread(differences)
    return Cell(show_signed(average(differences), 1) + mark, "" if spread is None else f"± {spread:.1f}")


def _make_note(document: Document) -> str:
    parts = [words for name, words in _TAKEN_ALONG.items() if name in document["labels"]]
    if shares := _get_defined(document["pooled_share"].get("robust_not_monotone", [])):
        parts.append(f"Without the constraint {mean(shares):.0%} of the field values have a function that falls.")
    return " ".join(parts)


def _get_defined(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def describe_parts(document: Document, mode: str) -> str:
    """Which changes cost LogLoss, which gain, and which are not told apart from the full calibrator, in words."""
    costs: list[str] = []
    gains: list[str] = []
    unclear: list[str] = []
    for name in list_rows(document, mode)[1:]:
        difference = average(subtract_full(document, name))
        significant = is_significant(document["p_value_log_loss"][name])
        group = unclear if difference is None or not significant else costs if difference > 0 else gains
        group.append(document["labels"][name])
    told = (("Cost LogLoss beyond noise", costs), ("gain beyond noise", gains), ("not told apart", unclear))
    words = "; ".join(f"{what}: {', '.join(names)}" for what, names in told if names)
    return f"{words[:1].upper()}{words[1:]}." if words else "There is no other row."
