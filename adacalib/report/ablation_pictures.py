"""Picture of an ablation: what each change costs in LogLoss."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adacalib.report.ablation_tables import list_rows, subtract_full
from adacalib.report.comparison_data import Document, average, is_significant
from adacalib.report.comparison_pictures import use_symmetric_scale
from adacalib.report.pictures import COLORS, GREY, LIGHT, Picture, make_picture

LOG_FROM_RATIO = 20.0
"""The axis is logarithmic where the largest mean is more than so many times the smallest."""

_TITLES = {"paper": "paper mode: one part more out per row", "robust": "robust mode: one change at a time"}


def draw_differences(document: Document, mode: str) -> Picture | None:
    """Δ LogLoss of each row of a mode to the full calibrator: bars for the mean, dots for seeds; None without rows.

    Args:
        document: ablate.json.
        mode: paper or robust.
    """
    rows = list_rows(document, mode)[1:]
    if not any(average(subtract_full(document, name)) is not None for name in rows):
        return None

    means = [abs(mean) for name in rows if (mean := average(subtract_full(document, name)))]
    is_logarithmic = max(means, default=0.0) > LOG_FROM_RATIO * min(means, default=0.0)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, name in enumerate(rows):
            _draw_row(axes, place, subtract_full(document, name), is_significant(document["p_value_log_loss"][name]))
        axes.axvline(0, color="black", linewidth=1)
        axes.set_yticks(range(len(rows)), [document["labels"][name] for name in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        if is_logarithmic:
            use_symmetric_scale(axes, {name: subtract_full(document, name) for name in rows})
        axes.set_xlabel("LogLoss − that of the full calibrator, in 1e-5 (right of 0: the change costs)")

    return make_picture(
        f"ablate_{mode}",
        f"What a change costs, {_TITLES[mode]}",
        "Bars are means over seeds, dots the seeds. "
        + ("The axis is linear around 0 and logarithmic beyond. " if is_logarithmic else "")
        + f"Blue: p < .05, paired over {document['p_value_over']}. "
        f"The full calibrator is “{document['labels'][list_rows(document, mode)[0]]}”.",
        1.0 + 0.36 * len(rows),
        draw,
    )


def _draw_row(axes: Axes, place: int, differences: list[float | None], significant: bool) -> None:
    middle = average(differences)
    if middle is None:
        axes.annotate("not defined", (0.02, place), xycoords=axes.get_yaxis_transform(), va="center", color=GREY)
        return
    axes.barh(place, middle, height=0.62, color=COLORS["adacalib"] if significant else LIGHT)
    seeds = [value for value in differences if value is not None]
    axes.plot(seeds, [place] * len(seeds), "o", color="black", markersize=4, alpha=0.6)
