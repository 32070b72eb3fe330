"""The paper's Fig. 3 and Fig. 4, from the `figures` of compare.json (see jobs/compare_figures.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adacalib.report.comparison_data import Document
from adacalib.report.data import shorten
from adacalib.report.pictures import COLORS, LIGHT, Picture, make_picture, use_whole_numbers

_COLOR_NEUCALIB = "#D55E00"


def draw_figure_3(document: Document) -> Picture | None:
    """Observed posteriors of two field values and the two functions over them, by bin; None without field values.

    Args:
        document: compare.json with figures.
    """
    values = document["figures"]["figure_3"]
    if not values:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(values), squeeze=False)[0]
        for axes, value in zip(panels, values, strict=True):
            _draw_value(axes, value)
        panels[0].set_ylabel("probability")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

    return make_picture(
        "compare_figure_3",
        "Functions over observed posteriors (Fig. 3 of the paper)",
        f"Two values of {document['field']}, the most frequent and one about ten times rarer. Bars: the response rate "
        "observed in each bin of train ∪ dev, bins of equal frequency by the un-calibrated score. Lines: the functions "
        "at each bin's mean score; NeuCalib has one for all values. What the auxiliary networks add sample by sample "
        "is in neither.",
        4.6,
        draw,
    )


def _draw_value(axes: Axes, value: Mapping[str, Any]) -> None:
    places = range(len(value["response_rate"]))
    axes.bar(places, _fill(value["response_rate"]), width=0.85, color=LIGHT, label="observed posterior")
    for name, label, color, style in (
        ("neucalib", "NeuCalib", _COLOR_NEUCALIB, "s--"),
        ("adacalib", "AdaCalib", COLORS["adacalib"], "D-"),
    ):
        axes.plot(places, _fill(value[name]), style, color=color, markersize=4, linewidth=1.8, label=label)
    samples, responses = value["n_samples"], value["n_responses"]
    axes.set_title(f"{shorten(value['field_value'], 36)}\n{samples:,} samples, {responses:,} responses")
    axes.set_ylim(bottom=0)
    use_whole_numbers(axes)
    axes.set_xlabel("bin index")


def _fill(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def draw_figure_4(document: Document) -> Picture | None:
    """How many field values chose the smallest and the largest number of bins; None without adaptive binning.

    Args:
        document: compare.json with figures.
    """
    found = document["figures"]["figure_4"]
    groups = found["groups"]
    if not groups:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for key, shift, color, candidate in (
            ("n_smallest", -0.2, "#E69F00", found["smallest"]),
            ("n_largest", 0.2, COLORS["adacalib"], found["largest"]),
        ):
            counts = [group[key] for group in groups]
            bars = axes.bar(
                [place + shift for place in range(len(groups))], counts, 0.38, color=color, label=f"{candidate} bins"
            )
            if max(group["n_values"] for group in groups) < 1000:  # longer numbers would touch
                axes.bar_label(bars, fontsize=9)
        axes.set_xticks(range(len(groups)), [_name_group(place, group) for place, group in enumerate(groups)])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.margins(y=0.12)
        axes.set_ylabel("field values")
        axes.set_xlabel("group of field values and their responses in train ∪ dev, fewest to most")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)

    sizes = sorted({group["n_values"] for group in groups})
    size = " or ".join(f"{n:,}" for n in sizes)
    return make_picture(
        "compare_figure_4",
        "Number of bins chosen, by number of positives (Fig. 4 of the paper)",
        f"The values of {document['field']} sorted by their number of positives into {len(groups)} groups of {size}: "
        f"how many chose {found['smallest']} and how many {found['largest']} bins in AdaCalib's paper mode; what is "
        "left chose a number between.",
        4.4,
        draw,
    )


def _name_group(place: int, group: Mapping[str, Any]) -> str:
    fewest, most = group["min_responses"], group["max_responses"]
    return f"{place + 1}\n{fewest:,}" + ("" if fewest == most else f"\n–{most:,}")
