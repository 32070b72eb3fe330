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


def make_metrics_table(metrics: dict[str, Any]) -> Table:
    """One row per method for the calibrated field; floors and attainable levels in the caption.

    Args:
        metrics: the document of metrics.json. A metric that is null (undefined on this test set) shows as –.
    """
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        title=f"{metrics['field']}: {metrics['n_test']:,} test samples, calibrated on {metrics['n_fit']:,}",
        caption=_caption(metrics),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for method, label in METHODS.items():
        values = metrics["methods"][method]
        cells = (show(values.get(key), digits) for key, (_, digits) in _COLUMNS.items())
        table.add_row(label, *cells, style="bold" if method == "adacalib" else None)
    return table


def make_other_fields_table(metrics: dict[str, Any]) -> Table | None:
    """Field-RCE of the fields that are evaluated but not calibrated, one row each; None when there are none."""
    fields = metrics.get("other_fields") or {}
    if not fields:
        return None
    table = Table(
        title="other fields, evaluated only: Field-RCE",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("field")
    for label in (*METHODS.values(), "floor"):
        table.add_column(label, justify="right")
    for field, content in fields.items():
        methods = content.get("methods", content)
        floor = methods["adacalib"].get("field_rce_noise_floor")
        table.add_row(field, *(show(methods[method].get("field_rce"), 4) for method in METHODS), show(floor, 4))
    return table


def show(value: float | None, digits: int) -> str:
    """A metric as text; – for null."""
    return "–" if value is None else f"{value:.{digits}f}"


def _caption(metrics: dict[str, Any]) -> str:
    values = metrics["methods"]["adacalib"]
    parts = []
    for key in ("field_rce", "field_rce_terciles"):
        floor, attainable = values.get(f"{key}_noise_floor"), values.get(f"{key}_attainable")
        parts.append(f"{_COLUMNS[key][0]}: noise floor {show(floor, 4)}, attainable {show(attainable, 4)}")
    return "\n".join([*parts, f"PCOC is best at 1. Floors take {metrics['reference_score']} for the truth."])
