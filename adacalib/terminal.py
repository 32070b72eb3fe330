"""The metrics of a run as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

METHODS = {
    "uncalibrated": "un-calibrated",
    "isotonic": "isotonic",
    "isotonic_offset": "isotonic + offset",
    "adacalib": "AdaCalib",
}

_COLUMNS = {
    "field_rce": ("Field-RCE", 4),
    "field_rce_terciles": ("Field-RCE terciles", 4),
    "log_loss": ("LogLoss", 5),
    "field_auc": ("Field-AUC", 4),
    "auc": ("AUC", 4),
    "pcoc": ("PCOC", 4),
}


def make_metrics_tables(metrics: dict[str, Any]) -> list[Table]:
    """One table per field, the calibrated one first: a row per method, floors and attainable levels below.

    Args:
        metrics: the document of metrics.json. A metric that is null (undefined on this test set) shows as –.
    """
    samples = f"{metrics['n_test']:,} test samples, calibrated on {metrics['n_fit']:,}"
    tables = [_make_table(f"{metrics['field']}: {samples}", metrics["methods"], metrics["reference_score"])]
    for field, methods in (metrics.get("other_fields") or {}).items():
        tables.append(_make_table(f"{field}: evaluated only, not calibrated", methods, metrics["reference_score"]))
    return tables


def _make_table(title: str, methods: dict[str, Any], reference: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption=_caption(methods["adacalib"], reference),
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("method", no_wrap=True)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for method, label in METHODS.items():
        cells = (show(methods[method].get(key), digits) for key, (_, digits) in _COLUMNS.items())
        table.add_row(label, *cells, style="bold" if method == "adacalib" else None)
    return table


def show(value: float | None, digits: int) -> str:
    """A metric as text; – for null."""
    return "–" if value is None else f"{value:.{digits}f}"


def _caption(values: dict[str, Any], reference: str) -> str:
    parts = []
    for key in ("field_rce", "field_rce_terciles"):
        floor, attainable = values.get(f"{key}_noise_floor"), values.get(f"{key}_attainable")
        parts.append(f"{_COLUMNS[key][0]}: noise floor {show(floor, 4)}, attainable {show(attainable, 4)}")
    return "\n".join([*parts, f"PCOC is best at 1. Floors take {reference} for the truth.\n"])
