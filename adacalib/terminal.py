"""The metrics of a run as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from rich.box import SIMPLE
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
        caption=_caption(methods, reference),
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


_SHOWN_ERROR = 5e-5
"""An error of the AUCs that shows in their last digit."""


def show(value: float | None, digits: int) -> str:
    """A metric as text; – for null."""
    return "–" if value is None else f"{value:.{digits}f}"


def _caption(methods: dict[str, Any], reference: str) -> str:
    parts, values = [], methods["adacalib"]
    for key in ("field_rce", "field_rce_terciles"):
        floor, attainable = values.get(f"{key}_noise_floor"), values.get(f"{key}_attainable")
        parts.append(f"{_COLUMNS[key][0]}: noise floor {show(floor, 4)}, attainable {show(attainable, 4)}")
    parts.append(f"PCOC is best at 1. Floors take {reference} for the truth.")
    keys = ("auc_cell_error", "field_auc_cell_error")
    error = max(own.get(key) or 0.0 for own in methods.values() for key in keys)
    if error >= _SHOWN_ERROR:
        parts.append(f"AUCs are by cells of scores, and off by at most {error:.4f}.")
    return "\n".join([*parts, ""])


_COMPARED = {
    "field_rce": ("Field-RCE", 4),
    "field_rce_terciles": ("Field-RCE terciles", 4),
    "log_loss": ("LogLoss", 5),
    "truth_error": ("error against truth", 4),
    "field_auc": ("Field-AUC", 4),
    "auc": ("AUC", 4),
    "pcoc": ("PCOC", 4),
    "fit_seconds": ("fit seconds", 0),
}
_FIRST_COMPARED = ("field_rce", "field_rce_terciles", "log_loss")
_FIRST_ABLATED = ("field_rce", "log_loss")
"""Columns of the first table; the rest are in the second, so that each fits 80 characters."""

_GROUP_STARTS = {"histogram_binning", "platt", "histogram_per_value", "neucalib", "adacalib_paper", "truth"}
"""Rows that begin a group of the comparison: Table 1, other global ones, field-aware ones, networks, AdaCalib."""

_LEARNED_ON = {"none": "nothing: N/A", "dev": "dev", "train_and_dev": "train and dev"}

SIGNIFICANT = 0.05


def make_comparison_tables(document: Mapping[str, Any]) -> list[Table]:
    """Table 1 of a comparison: a row per method, mean ± standard deviation over seeds, ‡ on a significant best.

    Args:
        document: compare.json.
    """
    shown = _shown_columns(document)
    title = (
        f"{document['name']}, field {document['field']}: {len(document['seeds'])} seeds, {document['n_test']:,} test "
        f"samples, calibrated on {document['n_fit']:,}"
    )
    tables = [_start(title, _describe_levels(document)), _start("", _describe_best(document))]
    for table, metrics in zip(tables, _divide(shown, _FIRST_COMPARED), strict=True):
        _add_columns(table, "method", metrics)
        for method, label in document["labels"].items():
            if method in _GROUP_STARTS:
                table.add_section()
            cells = [_show_compared(document, method, metric) for metric in metrics]
            table.add_row(label, *cells, style="bold" if method == "adacalib" else None)
    return tables if document["level_drift"] is None else [*tables, _make_drift_table(document)]


def _make_drift_table(document: Mapping[str, Any]) -> Table:
    """Dated rows: what global calibrations learned on other days are worth on the test days, beside AdaCalib."""
    table = _start("Does the level drift? One calibration for all, learned on other days", "PCOC: Σp/Σy, 1 is right.\n")
    _add_columns(table, "learned on", ["log_loss", "pcoc"])
    ours = document["methods"]["adacalib"]
    for label, own in (*((_LEARNED_ON[key], own) for key, own in document["level_drift"].items()), ("AdaCalib", ours)):
        table.add_row(label, show_mean(own["log_loss"], 5), show_mean(own["pcoc"], 4))
    return table


def make_ablation_tables(document: Mapping[str, Any]) -> list[Table]:
    """Table 2 and the parts of robust mode: a row per variant, LogLoss also as difference to the full one.

    Args:
        document: ablate.json.
    """
    shown = [metric for metric in _shown_columns(document) if metric != "auc"]
    title = f"{document['name']}, field {document['field']}: one part out at a time, {len(document['seeds'])} seeds"
    explained = "Δ LogLoss: to the full calibrator of the same mode, in 1e-5; * where p < .05 (over "
    explained += f"{document['p_value_over']})."
    tables = [_start(title, f"{_describe_levels(document)}\n{explained}"), _start("", "")]
    for table, metrics in zip(tables, _divide(shown, _FIRST_ABLATED), strict=True):
        _add_columns(table, "variant", metrics)
        if table is tables[0]:
            table.add_column("Δ LogLoss\n1e-5", justify="right", no_wrap=True)
        for name, label in document["labels"].items():
            if name in ("paper_full", "robust_full"):
                table.add_section()
            cells = [_show_compared(document, name, metric) for metric in metrics]
            if table is tables[0]:
                cells.append(_show_loss_difference(document, name))
            table.add_row(label, *cells, style="bold" if name.endswith("_full") else None)
    shares = [s for s in document["pooled_share"].get("robust_not_monotone", []) if s is not None]
    if shares:
        tables[1].caption = f"Not monotone without the constraint: {mean(shares):.0%} of the field values.\n"
    return tables


def show_mean(values: Sequence[float | None], digits: int) -> str:
    """Mean ± standard deviation over seeds (a spread below 1 without its 0); – where a value is not defined."""
    defined = [value for value in values if value is not None]
    if not defined or len(defined) < len(values):
        return "–"
    spread = f" ±{stdev(defined):.{digits}f}".replace("±0.", "±.") if len(defined) > 1 else ""
    return f"{mean(defined):.{digits}f}{spread}"


def show_seconds(values: Sequence[float]) -> str:
    """Mean seconds over seeds: two decimals below 1, one below 100, none from there on."""
    seconds = mean(values)
    return f"{seconds:.{(seconds < 1) + (seconds < 100)}f}"


def _shown_columns(document: Mapping[str, Any]) -> list[str]:
    return [
        metric
        for metric in _COMPARED
        if metric != "pcoc"  # the page has it; here the table would be too wide
        and any(value is not None for own in document["methods"].values() for value in own[metric])
    ]


def _show_compared(document: Mapping[str, Any], method: str, metric: str) -> str:
    values, digits = document["methods"][method][metric], _COMPARED[metric][1]
    if metric == "fit_seconds":
        return "" if method in ("uncalibrated", "truth") else show_seconds(values)
    found = (document.get("by_metric") or {}).get(metric) or {"best": None}
    is_significant = found["best"] == method and found["p_value"] is not None and found["p_value"] < SIGNIFICANT
    mark = "‡" if is_significant else ""
    return show_mean(values, digits) + mark


def _show_loss_difference(document: Mapping[str, Any], name: str) -> str:
    if name.endswith("_full") or name == "uncalibrated":
        return ""
    full = f"{name.split('_')[0]}_full"
    own, whole = (document["methods"][n]["log_loss"] for n in (name, full))
    p_value = document["p_value_log_loss"][name]
    mark = "*" if p_value is not None and p_value < SIGNIFICANT else ""
    return f"{1e5 * (mean(own) - mean(whole)):+.1f}{mark}"


def _describe_levels(document: Mapping[str, Any]) -> str:
    return (
        f"Field-RCE: noise floor {show_mean(document['noise_floor'], 4)}, attainable "
        f"{show_mean(document['attainable'], 4)}\nField-RCE terciles: noise floor "
        f"{show_mean(document['noise_floor_terciles'], 4)}, attainable {show_mean(document['attainable_terciles'], 4)}"
        f"\nFloors take {document['reference_score']} for the truth."
    )


def _describe_best(document: Mapping[str, Any]) -> str:
    lines = [f"‡ best, and better than the second best at p < .05, paired over {document['p_value_over']}."]
    for metric, found in document["by_metric"].items():
        if found["second"] is None:
            continue
        best, second = (document["labels"][found[place]] for place in ("best", "second"))
        over_rows = found["p_value_jackknife"] if document["p_value_over"] == "seeds" else None
        beside = "" if over_rows is None else f" (over groups of rows: {over_rows:.2g})"
        p_value = "–" if found["p_value"] is None else f"{found['p_value']:.2g}"
        lines.append(f"{_COMPARED[metric][0]}: {best} before {second}, p = {p_value}{beside}")
    return "\n".join([*lines, "AdaCalib's own variants count as one method.\n"])


def _divide(metrics: Sequence[str], first: Sequence[str]) -> tuple[list[str], list[str]]:
    return [metric for metric in metrics if metric in first], [metric for metric in metrics if metric not in first]


def _add_columns(table: Table, heading: str, metrics: Sequence[str]) -> None:
    """The names may take two lines where the terminal is narrow, figures never."""
    table.add_column(heading)
    for metric in metrics:
        table.add_column(_COMPARED[metric][0].replace(" ", "\n", 1), justify="right", no_wrap=True)


def _start(title: str, caption: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=SIMPLE,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
