"""Tables of the page: text in rows, every number already written out. Escaping is the template's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adacalib.report.data import METHODS, FieldValue
from adacalib.report.numbers import (
    UNDEFINED,
    compute_pcoc_band,
    compute_residual_noise,
    show,
    show_count,
    show_metric,
    show_p_value,
    show_signed,
)

COLUMNS = {
    "field_rce": "Field-RCE",
    "field_rce_terciles": "Field-RCE terciles",
    "field_ece": "Field-ECE",
    "pcoc": "PCOC",
    "log_loss": "LogLoss",
    "auc": "AUC",
    "field_auc": "Field-AUC",
}
"""Metrics of the table of methods, with the names they are shown by."""

LOWER_IS_BETTER = {"field_rce", "field_rce_terciles", "field_ece", "log_loss"}

MAX_FIELD_VALUES = 500
"""Field values in the full table; field_value_metrics has all."""


@dataclass(frozen=True)
class Cell:
    """One cell: the text, a smaller second line under it, and whether it is a number and stands out."""

    text: str
    detail: str = ""
    is_number: bool = True
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Attributes:
        headings: one per column; the first column is text.
        rows: as many cells as headings.
        marked: indices of rows that stand out.
        note: what stands below it.
        groups: index of a row → heading of the group of rows that begins with it.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: frozenset[int] = frozenset()
    note: str = ""
    groups: Mapping[int, str] = field(default_factory=dict)


def make_methods_table(methods: Mapping[str, Any]) -> Table:
    """Every method with its metrics and intervals, then noise floor and attainable level; null metrics show as –.

    Args:
        methods: method → metrics, as in metrics.json.
    """
    best = {metric: _find_best(methods, metric) for metric in COLUMNS}
    rows = [
        [
            Cell(name, is_number=False),
            *(_make_metric_cell(methods[method], metric, method in best[metric]) for metric in COLUMNS),
        ]
        for method, name in METHODS.items()
    ]
    ours = methods["adacalib"]
    for suffix, name in (("_attainable", "attainable"), ("_noise_floor", "noise floor")):
        cells = (Cell(show(ours[m + suffix], 4) if ours.get(m + suffix) is not None else "") for m in COLUMNS)
        rows.append([Cell(name, is_number=False), *cells])
    return Table(
        ["method", *COLUMNS.values()],
        rows,
        frozenset({list(METHODS).index("adacalib")}),
        _describe_left_out(ours),
    )


def _make_metric_cell(values: Mapping[str, Any], metric: str, is_best: bool) -> Cell:
    interval = (values.get("intervals") or {}).get(metric)
    detail = f"{show_metric(metric, interval[0])} – {show_metric(metric, interval[1])}" if interval else ""
    return Cell(show_metric(metric, values.get(metric)), detail, is_best=is_best)


def _find_best(methods: Mapping[str, Any], metric: str) -> set[str]:
    """Methods whose figure, as shown, is the best of all."""
    distance = {}
    for method in METHODS:
        if (value := methods[method].get(metric)) is not None:
            shown = float(show_metric(metric, value).replace("−", "-"))
            sign = 1 if metric in LOWER_IS_BETTER else -1
            distance[method] = abs(shown - 1) if metric == "pcoc" else sign * shown
    return {method for method, value in distance.items() if value == min(distance.values())}


def _describe_left_out(values: Mapping[str, Any]) -> str:
    parts = []
    if n := values.get("field_rce_excluded_field_values"):
        parts.append(
            f"Field-RCE leaves out the field values without a positive in the test split: {n:,} of them, with "
            f"{show_count(values.get('field_rce_excluded_samples'))} samples; over all samples it is "
            f"{show(values.get('field_rce_all_samples'), 4)} for AdaCalib."
        )
    if n := values.get("field_auc_excluded_field_values"):
        parts.append(
            f"Field-AUC leaves out the field values with one class only: {n:,} of them, with "
            f"{show_count(values.get('field_auc_excluded_samples'))} samples."
        )
    unseen = values.get("unseen") or {}
    if unseen.get("n_samples"):
        parts.append(
            f"Test samples with a field value that neither train nor dev has: {unseen['n_samples']:,}. Together they "
            f"are one field value, (unseen), with {unseen['n_responses']:,} responses observed and "
            f"{show_count(unseen['score_sum'])} expected by AdaCalib."
        )
    return " ".join(parts)


def make_paired_table(metrics: Mapping[str, Any]) -> Table:
    """Paired differences of AdaCalib and other methods on the same samples, of every field; no row where none exist."""
    fields = {metrics["field"]: metrics, **(metrics.get("other_fields") or {})}
    rows = []
    for name, content in fields.items():
        for pair, differences in (content.get("paired_differences") or {}).items():
            other = pair.removeprefix("adacalib_minus_")
            for metric, found in differences.items():
                rows.append(
                    [
                        Cell(name, is_number=False),
                        Cell(f"AdaCalib − {METHODS.get(other, other)}", is_number=False),
                        Cell(COLUMNS.get(metric, metric), is_number=False),
                        *_make_difference_cells(found),
                    ]
                )
    return Table(["field", "difference", "metric", "value", "95 % interval", "p value", "AdaCalib is"], rows)


def _make_difference_cells(found: Mapping[str, Any] | None) -> list[Cell]:
    if found is None:
        return [Cell(UNDEFINED), Cell(UNDEFINED), Cell(UNDEFINED), Cell("not told apart", is_number=False)]
    low, high = found["interval"]
    word = "within noise" if found["p_value"] >= 0.05 else "better" if found["difference"] < 0 else "worse"
    return [
        Cell(show_signed(found["difference"], 5)),
        Cell(f"{show_signed(low, 5)} to {show_signed(high, 5)}"),
        Cell(show_p_value(found["p_value"]).removeprefix("p = ").removeprefix("p ")),
        Cell(word, is_number=False),
    ]


def make_residuals_table(values: Sequence[FieldValue]) -> Table:
    """Observed and expected responses of field values, before and after, with the noise of right scores."""
    rows = []
    for value in values:
        before, after = value.methods["uncalibrated"], value.methods["adacalib"]
        low, high = compute_pcoc_band(after.n_samples, after.score_sum / after.weight)
        noise = compute_residual_noise(after.n_samples, after.weight, after.score_sum)
        rows.append(
            [
                Cell(value.label, is_number=False),
                Cell(f"{value.n_fit_samples:,}"),
                Cell(f"{after.n_samples:,}"),
                Cell(show_count(after.response)),
                *(Cell(show_signed(sums.residual, 1)) for sums in (before, after)),
                Cell(f"± {show(noise, 1)}"),
                *(Cell(show(sums.pcoc, 3)) for sums in (before, after)),
                Cell(f"{show(low, 3)} to {show(high, 3) if high < 1e6 else '∞'}"),
            ]
        )
    headings = ["value", "samples, train ∪ dev", "samples, test", "observed Σy"]
    residual = "Σp\u00a0−\u00a0Σy"
    headings += [f"{residual} before", f"{residual} after", f"noise of {residual}"]
    return Table([*headings, "PCOC before", "PCOC after", "noise of PCOC"], rows)


_LEVEL_DRIFT_LABELS = {
    "none": "un-calibrated",
    "dev": "global curve from dev",
    "train_and_dev": "global curve from train and dev",
}


def make_level_drift_table(drift: Mapping[str, Mapping[str, float | None]]) -> Table:
    """LogLoss and PCOC on test of global calibrations learned on different days."""
    return Table(
        ["calibration of all samples alike", "LogLoss", "PCOC"],
        [
            [
                Cell(_LEVEL_DRIFT_LABELS.get(key, key), is_number=False),
                Cell(show(found.get("log_loss"), 5)),
                Cell(show(found.get("pcoc"), 4)),
            ]
            for key, found in drift.items()
        ],
    )
