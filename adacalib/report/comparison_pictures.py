"""Pictures of a comparison: methods as rows with a dot per seed, and errors by frequency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from adacalib.report.comparison_data import TRUTH, Document, Values, average, list_groups, subtract
from adacalib.report.comparison_tables import (
    collect_decile,
    get_sparsity_metric,
    list_deciles,
    list_sparsity_methods,
    name_fit_samples,
)
from adacalib.report.data import shorten
from adacalib.report.pictures import COLORS, GREY, LIGHT, Picture, make_picture, use_log_scale

UNIT = 1e-5
"""Of differences in LogLoss."""

LOG_FROM_RATIO = 5.0
"""An axis is logarithmic where the largest mean is more than so many times the smallest."""

_GROUP_STYLE = {
    "uncalibrated": ("#D55E00", "o"),
    "platt": ("#E69F00", "v"),
    "histogram_per_value": ("#009E73", "s"),
    "neucalib": ("#CC79A7", "^"),
    "adacalib_paper": (COLORS["adacalib"], "D"),
    TRUTH: ("black", "*"),
}
"""Colour and marker of the methods from this one on."""

_LINES = {
    "isotonic_ratio": ("#009E73", "s", ":"),
    "isotonic_offset_auxiliary": ("#CC79A7", "^", "--"),
    "adacalib_no_auxiliary": ("#56B4E9", "o", "-."),
    "adacalib_no_parent": ("#56B4E9", "x", "--"),
    "adacalib": (COLORS["adacalib"], "D", "-"),
}


def draw_methods(document: Document) -> Picture:
    """LogLoss (per seed, as difference to the method of the best mean) and Field-RCE of every method.

    Args:
        document: compare.json.
    """
    labels = document["labels"]
    best = document["best"]
    losses = {name: document["methods"][name]["log_loss"] for name in labels}
    behind = {name: [_scale(v) for v in subtract(own, losses[best])] for name, own in losses.items()}
    errors = {name: document["methods"][name]["field_rce"] for name in labels}

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        use_symmetric_scale(left, behind)
        _draw_rows(left, behind, labels)
        left.axvline(0, color=GREY, linewidth=1, zorder=1)
        left.set_xlabel(f"LogLoss − that of {shorten(labels[best], 30)}, in 1e-5")
        _draw_levels(right, document)
        _use_scale_of_means(right, errors, [average(document[key]) for key in ("noise_floor", "attainable")])
        _draw_rows(right, errors, labels)
        right.set_xlabel("Field-RCE")
        _name_rows(left, labels)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)

    return make_picture(
        "compare_methods",
        "LogLoss and Field-RCE of every method",
        f"Small dots are seeds, large marks their mean. Left: what each method's LogLoss is above that of "
        f"{labels[best]} in the same seed (0; linear near it, logarithmic beyond); right: Field-RCE, which only luck "
        "gets below the noise floor. Left is better in both.",
        1.5 + 0.31 * len(labels),
        draw,
    )


def _scale(value: float | None) -> float | None:
    return None if value is None else value / UNIT


def _draw_levels(axes: Axes, document: Document) -> None:
    floor, attainable = average(document["noise_floor"]), average(document["attainable"])
    if floor is not None:
        axes.axvspan(0, floor, color=LIGHT, zorder=0, label="below the noise floor")
    if attainable is not None:
        axes.axvline(attainable, color="black", linestyle="--", linewidth=1, zorder=1, label="attainable")


def draw_truth(document: Document) -> Picture | None:
    """Error against the true probabilities of every method; None where no truth is known."""
    labels = {name: label for name, label in document["labels"].items() if name != TRUTH}
    errors = {name: document["methods"][name]["truth_error"] for name in labels}
    if all(average(values) is None for values in errors.values()):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        _use_scale_of_means(axes, errors)
        _draw_rows(axes, errors, labels)
        _name_rows(axes, labels)
        for place, values in enumerate(errors.values()):
            if (value := average(values)) is not None:
                axes.text(1.01, place, f"{value:.4f}", transform=axes.get_yaxis_transform(), va="center")
        axes.set_xlabel("mean |p − t| / mean t, t the true probability")

    return make_picture(
        "compare_truth",
        "Error against the truth",
        "How far each method's probabilities lie from the true ones, relative to their mean; left is better, 0 is the "
        "truth itself. Small dots are seeds, large marks and figures their mean.",
        1.1 + 0.29 * len(labels),
        draw,
    )


def _draw_rows(axes: Axes, values: Mapping[str, Values], labels: Mapping[str, str]) -> None:
    style = _GROUP_STYLE["uncalibrated"]
    for place, name in enumerate(labels):
        style = _GROUP_STYLE.get(name, style)
        color, marker = style
        seeds = [value for value in values[name] if value is not None]
        axes.plot(seeds, [place] * len(seeds), "o", color=color, markersize=3.5, alpha=0.45, zorder=2)
        if (middle := average(values[name])) is not None:
            size = 11 if marker == "*" else 7.5
            axes.plot(middle, place, marker, color=color, markersize=size, markeredgecolor="white", zorder=3)
        else:
            axes.annotate("not defined", (0.02, place), xycoords=axes.get_yaxis_transform(), va="center", color=GREY)


def _name_rows(axes: Axes, labels: Mapping[str, str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, 34) for label in labels.values()])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    for tick, name in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if name == "adacalib" else "normal")
    for panel in axes.figure.axes:
        for place in list_groups(list(labels)):
            if place:
                panel.axhline(place - 0.5, color=GREY, linewidth=0.7, zorder=1)


def _use_scale_of_means(axes: Axes, values: Mapping[str, Values], levels: Sequence[float | None] = ()) -> None:
    """Logarithmic where means lie far apart; then the seeds, all above 0, and the levels decide the limits."""
    means = [mean for own in values.values() if (mean := average(own)) is not None]
    seeds = [value for own in values.values() for value in own if value is not None]
    if seeds and min(seeds) > 0 and max(means) > LOG_FROM_RATIO * min(means):
        few = max(means) > 50 * min(means)
        use_log_scale(axes, "x", (1.0, 3.0) if few else (1.0, 2.0, 3.0, 5.0))
        axes.set_xlim(min([*seeds, *(level for level in levels if level)]) / 1.25, max(seeds) * 1.15)
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, 1.05 * max(seeds, default=1.0) or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(5))


def use_symmetric_scale(axes: Axes, values: Mapping[str, Values]) -> None:
    """Sets the x axis linear around 0 and logarithmic beyond, with ticks at 0 and at powers of ten.

    Args:
        axes: the panel.
        values: name → one value per seed, in UNIT; the smallest mean decides where the logarithm begins, 1 to 100.
    """
    seeds = [value for own in values.values() for value in own if value is not None]
    largest, smallest = max([*seeds, 1.0]), min([*seeds, 0.0])
    means = [abs(m) for own in values.values() if (m := average(own)) is not None and m != 0]
    power = min(max(math.floor(math.log10(min(means, default=1.0))), 0), 2)
    axes.set_xscale("symlog", linthresh=10.0**power, linscale=0.6)
    last = [max(power, math.ceil(math.log10(max(abs(edge), 10.0**power)))) for edge in (smallest, largest)]
    below = [-(10.0**p) for p in range(power, last[0] + 1)] if smallest < 0 else []
    axes.xaxis.set_major_locator(FixedLocator([*below, 0.0, *(10.0**p for p in range(power, last[1] + 1))]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−")))
    axes.xaxis.set_minor_locator(NullLocator())
    room = 10.0**power / 3
    axes.set_xlim(min(1.4 * smallest, -room), 1.4 * largest)


def draw_sparsity(document: Document) -> Picture | None:
    """Error by decile of field-value frequency, unseen values as a point apart; None without any figure."""
    column, methods, deciles = get_sparsity_metric(document), list_sparsity_methods(document), list_deciles(document)
    curves = {m: [collect_decile(document, m, decile, column.metric) for decile in deciles] for m in methods}
    if all(average(values) is None for curve in curves.values() for values in curve):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for shift, method in enumerate(methods):
            places = [place + 0.06 * (shift - 1.5) + (0.6 if d is None else 0) for place, d in enumerate(deciles)]
            _draw_curve(axes, places, curves[method], method, document["labels"][method], deciles[-1] is None)
        _name_deciles(axes, document, deciles)
        axes.set_ylabel(column.heading)
        axes.set_ylim(bottom=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)

    return make_picture(
        "compare_sparsity",
        "Error by frequency of the field value",
        f"Values of {document['field']} in ten groups of equally many by their number of fit samples (below the "
        f"decile; ranges of the first seed), and unseen ones apart. Lines are means of {column.heading} over "
        "seeds, dots the seeds.",
        4.8,
        draw,
    )


def _draw_curve(
    axes: Axes, places: Sequence[float], curve: Sequence[Values], method: str, label: str, has_unseen: bool
) -> None:
    color, marker, line = _LINES[method]
    means = [average(values) for values in curve]
    for place, values in zip(places, curve, strict=True):
        seeds = [value for value in values if value is not None]
        axes.plot([place] * len(seeds), seeds, "o", color=color, markersize=3, alpha=0.4)
    n_joined = len(places) - has_unseen
    heights = [math.nan if mean is None else mean for mean in means]
    axes.plot(places[:n_joined], heights[:n_joined], marker + line, color=color, markersize=6, label=label)
    axes.plot(places[n_joined:], heights[n_joined:], marker, color=color, markersize=6)


def _name_deciles(axes: Axes, document: Document, deciles: Sequence[int | None]) -> None:
    places = [place + (0.6 if decile is None else 0) for place, decile in enumerate(deciles)]
    names = [
        "unseen" if decile is None else f"{decile}\n" + name_fit_samples(document, decile).replace("–", "\n–")
        for decile in deciles
    ]
    axes.set_xticks(places, names)
    if deciles[-1] is None and len(deciles) > 1:
        axes.axvline(places[-1] - 0.8, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("decile, and fit samples of its field values; fewest to most")
