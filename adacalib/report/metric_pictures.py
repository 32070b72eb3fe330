"""Pictures of metrics and of reliability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adacalib.report.data import METHODS, Curve, ReportData, shorten
from adacalib.report.pictures import COLORS, GREY, LIGHT, MARKERS, Picture, hide, make_picture

_BEFORE_AND_AFTER = ("uncalibrated", "adacalib")

N_SHOWN_FIELDS = 6
"""Fields in the picture of Field-RCE; the table has all."""


def draw_field_rce(data: ReportData) -> Picture:
    """Field-RCE of every method and field with intervals, noise floor and attainable level."""
    fields = {data.metrics["field"]: data.metrics["methods"], **(data.metrics.get("other_fields") or {})}
    shown = list(fields.items())[:N_SHOWN_FIELDS]
    n_rows = -(-len(shown) // 3)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(n_rows, min(len(shown), 3), squeeze=False).ravel()
        for axes in panels[len(shown) :]:
            hide(axes)
        for place, (axes, (field, methods)) in enumerate(zip(panels, shown, strict=False)):
            _draw_methods(axes, methods, with_names=place % 3 == 0)
            axes.set_title(shorten(field, 30) + (" (calibrated)" if place == 0 else " (evaluated only)"))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)

    return make_picture(
        "field_rce",
        "Field-RCE before and after",
        "The mean relative error of the expected number of responses per field value; lower is better, and "
        "only luck gets below the noise floor. Bars are 95 % intervals.",
        0.8 + 2.5 * n_rows,
        draw,
    )


def _draw_methods(axes: Axes, methods: Mapping[str, Any], with_names: bool) -> None:
    for place, method in enumerate(METHODS):
        value = methods[method].get("field_rce")
        if value is None:
            axes.text(0, place, " not defined", va="center", color=GREY)
            continue
        low, high = (methods[method].get("intervals") or {}).get("field_rce") or (value, value)
        error = [[max(value - low, 0)], [max(high - value, 0)]]
        axes.errorbar(value, place, xerr=error, fmt=MARKERS[method], color=COLORS[method], capsize=4, markersize=7)
    ours = methods["adacalib"]
    if (floor := ours.get("field_rce_noise_floor")) is not None:
        axes.axvspan(0, floor, color=LIGHT, zorder=0, label="below the noise floor")
    if (attainable := ours.get("field_rce_attainable")) is not None:
        axes.axvline(attainable, color="black", linestyle="--", linewidth=1, zorder=1, label="attainable")
    axes.set_yticks(range(len(METHODS)), list(METHODS.values()) if with_names else [""] * len(METHODS))
    axes.set_ylim(len(METHODS) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("Field-RCE")


def draw_reliability(data: ReportData) -> Picture | None:
    """Reliability over all test samples: rate against score, their difference, and counts; None without samples."""
    curves = {c.method: c for c in data.curves if c.field_value_id is None and len(c.mean_score)}
    if not curves:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, 2, height_ratios=(3, 1), sharex="col")
        for method, curve in curves.items():
            if method in _BEFORE_AND_AFTER:
                _draw_curve(panels[0, 0], curve)
            _draw_curve(panels[0, 1], curve, minus_score=True, with_interval=method in _BEFORE_AND_AFTER)
        _draw_diagonal(panels[0, 0])
        panels[0, 0].set_ylabel("observed response rate")
        panels[0, 1].set_ylabel("observed rate − mean score")
        panels[0, 1].axhline(0, color=GREY, linewidth=1)
        panels[0, 0].legend(loc="upper left")
        panels[0, 1].legend(loc="best")
        for axes, methods in ((panels[1, 0], _BEFORE_AND_AFTER), (panels[1, 1], tuple(METHODS))):
            _draw_counts(axes, [curves[method] for method in methods if method in curves])

    return make_picture(
        "reliability",
        "Reliability over all test samples",
        "Samples are put into bins of equal frequency by each method's own score. On the dashed line (left) or at 0 "
        "(right) the scores say what happens. Bars are 95 % intervals of the observed rate (right: of two methods, "
        "for clarity); below, the number of test samples in each bin.",
        6.2,
        draw,
    )


def draw_field_value_reliability(data: ReportData) -> Picture | None:
    """Reliability of the most frequent field values before and after, with counts; None without any."""
    ids = list(dict.fromkeys(c.field_value_id for c in data.curves if c.field_value_id is not None))
    found = {(c.field_value_id, c.method): c for c in data.curves if len(c.mean_score)}
    ids = [value for value in ids if (value, "adacalib") in found and (value, "uncalibrated") in found]
    if not ids:
        return None
    n_rows = -(-len(ids) // 3)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(n_rows, 3, squeeze=False).ravel()
        for axes in panels[len(ids) :]:
            hide(axes)
        for place, (axes, value) in enumerate(zip(panels, ids, strict=False)):
            before, after = (found[value, method] for method in ("uncalibrated", "adacalib"))
            _draw_curve(axes, before)
            _draw_curve(axes, after)
            _draw_diagonal(axes)
            least, most = min(after.n_samples), max(after.n_samples)
            per_bin = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            name = shorten(data.labels[value])
            axes.set_title(f"{name}: {sum(after.n_samples):,} samples\n{per_bin} a bin")
            axes.set_xlabel("mean score")
            axes.set_ylabel("observed rate" if place % 3 == 0 else "")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)

    return make_picture(
        "reliability_field_values",
        "Reliability of the most frequent field values",
        f"As above, one panel per value of {data.config.field}. A curve off the dashed line is a field effect that the "
        "score does not know. Bars are 95 % intervals of the observed rate.",
        0.7 + 3.5 * n_rows,
        draw,
    )


def _draw_curve(axes: Axes, curve: Curve, minus_score: bool = False, with_interval: bool = True) -> None:
    score, rate = np.array(curve.mean_score), np.array(curve.response_rate)
    error = np.clip([rate - np.array(curve.rate_low), np.array(curve.rate_high) - rate], 0, None)
    axes.errorbar(
        score,
        rate - score if minus_score else rate,
        yerr=error if with_interval else None,
        color=COLORS[curve.method],
        marker=MARKERS[curve.method],
        markersize=4.5,
        linewidth=1.2 if with_interval else 0.8,
        elinewidth=0.9,
        capsize=2,
        label=METHODS[curve.method],
    )


def _draw_diagonal(axes: Axes) -> None:
    upper = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([0, upper], [0, upper], color=GREY, linestyle="--", linewidth=1, zorder=1)
    axes.set_xlim(0, upper)
    axes.set_ylim(0, upper)


def _draw_counts(axes: Axes, curves: list[Curve]) -> None:
    for curve in curves:
        axes.plot(
            curve.mean_score,
            curve.n_samples,
            linestyle="none",
            marker=MARKERS[curve.method],
            color=COLORS[curve.method],
            markersize=5,
        )
    axes.set_ylim(0, 1.15 * max(max(curve.n_samples) for curve in curves))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("samples")
    axes.set_xlabel("mean score of the bin (probability)")
