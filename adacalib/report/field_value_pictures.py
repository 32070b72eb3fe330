"""Pictures with one point per field value."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adacalib.report.data import FieldValue, ReportData, shorten
from adacalib.report.numbers import compute_pcoc_band, compute_residual_noise
from adacalib.report.pictures import COLORS, GREY, LIGHT, MARKERS, Picture, make_picture, use_log_scale

N_LARGEST = 20
"""Field values in the table and picture of the largest residuals."""

N_NAMED = 40
"""Up to so many field values the picture of PCOC names each; beyond, they are points over their frequency."""

PCOC_LIMITS = (0.2, 5.0)
"""PCOC outside is drawn at the limit."""

_SHOWN = {"uncalibrated": "un-calibrated", "adacalib": "AdaCalib"}


def find_largest_residuals(values: list[FieldValue]) -> list[FieldValue]:
    """The N_LARGEST field values with the largest |Σp − Σy| before or after, the largest first."""
    return sorted(values, key=lambda v: (-max(abs(v.methods[m].residual) for m in _SHOWN), v.field_value_id))[
        :N_LARGEST
    ]


def draw_residuals(data: ReportData) -> Picture | None:
    """Expected minus observed responses of the field values that miss most; None without test samples."""
    values = find_largest_residuals(list(data.field_values))
    if not values:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, value in enumerate(values):
            sums = value.methods["adacalib"]
            noise = compute_residual_noise(sums.n_samples, sums.weight, sums.score_sum)
            axes.barh(
                place, 2 * noise, left=-noise, height=0.8, color=LIGHT, label="noise (95 %)" if place == 0 else None
            )
        _draw_before_and_after(
            axes, [(v.methods["uncalibrated"].residual, v.methods["adacalib"].residual) for v in values]
        )
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(values)), [shorten(v.label) for v in values])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}".replace("-", "−"))
        axes.set_xlabel(f"expected − observed {data.responses} on the test split")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)

    return make_picture(
        "largest_residuals",
        "Field values that miss most",
        f"The {len(values)} values of {data.config.field} with the largest difference between expected and observed "
        f"{data.responses}, before or after. Inside the grey bar a difference is what chance alone brings to right "
        "scores.",
        1.3 + 0.3 * len(values),
        draw,
    )


def draw_pcoc(data: ReportData) -> Picture | None:
    """PCOC of every field value before and after with its noise band; None where no field value has a positive."""
    values = [v for v in data.field_values if v.methods["adacalib"].pcoc is not None]
    if not values:
        return None
    n_left_out = len(data.field_values) - len(values)
    named = len(values) <= N_NAMED
    left_out = (
        f" {n_left_out} without a positive in the test split have no PCOC and are not shown." if n_left_out else ""
    )
    order = "the most frequent on top" if named else "by their number of test samples"
    return make_picture(
        "pcoc",
        "Expected / observed responses of every field value",
        f"PCOC of each value of {data.config.field}, {order}; 1 is right. Inside the grey band a ratio is what chance "
        f"alone brings to right scores (95 %), so about one value in twenty lies outside by chance. Ratios beyond "
        f"{PCOC_LIMITS[0]:g} and {PCOC_LIMITS[1]:g} are drawn at the edge.{left_out}",
        1.3 + 0.3 * len(values) if named else 5.0,
        lambda figure: _draw_named_pcoc(figure, values) if named else _draw_pcoc_points(figure, values),
    )


def _draw_named_pcoc(figure: Figure, values: list[FieldValue]) -> None:
    axes = figure.subplots()
    for place, value in enumerate(values):
        low, high = (_limit(edge) for edge in _pcoc_band(value))
        axes.barh(place, high - low, left=low, height=0.8, color=LIGHT, label="noise (95 %)" if place == 0 else None)
    _draw_before_and_after(axes, [(_pcoc(v, "uncalibrated"), _pcoc(v, "adacalib")) for v in values])
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_yticks(range(len(values)), [f"{shorten(v.label)}  ({v.methods['adacalib'].n_samples:,})" for v in values])
    axes.set_ylim(len(values) - 0.4, -0.6)
    use_log_scale(axes, "x", (0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0))
    _tighten_pcoc(axes, values, "x")
    axes.set_xlabel("PCOC: expected / observed responses (logarithmic scale); in brackets: test samples")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def _draw_pcoc_points(figure: Figure, values: list[FieldValue]) -> None:
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    by_size = sorted(values, key=lambda v: v.methods["adacalib"].n_samples)
    sizes = [v.methods["adacalib"].n_samples for v in by_size]
    bands = np.array([[_limit(edge) for edge in _pcoc_band(v)] for v in by_size])
    for axes, method in zip(panels, _SHOWN, strict=True):
        axes.vlines(sizes, bands[:, 0], bands[:, 1], color=LIGHT, linewidth=2.5, label="noise (95 %)")
        axes.plot(
            sizes,
            [_pcoc(v, method) for v in by_size],
            linestyle="none",
            marker=MARKERS[method],
            color=COLORS[method],
            markersize=3.5,
            label=_SHOWN[method],
        )
        axes.axhline(1, color=GREY, linewidth=1)
        axes.set_title(_SHOWN[method])
        axes.set_xlabel("test samples of the field value")
        use_log_scale(axes, "x", (1.0,))
        use_log_scale(axes, "y", (0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0))
        axes.legend(loc="upper right")
    _tighten_pcoc(panels[0], values, "y")
    panels[0].set_ylabel("PCOC: expected / observed")


def _tighten_pcoc(axes: Axes, values: list[FieldValue], axis: str) -> None:
    # the points decide, wide noise bands of rare values run out of the picture
    drawn = [_pcoc(value, method) for value in values for method in _SHOWN]
    limits = (min([*drawn, 0.8]) / 1.06, max([*drawn, 1.25]) * 1.06)
    (axes.set_xlim if axis == "x" else axes.set_ylim)(*limits)


def _draw_before_and_after(axes: Axes, pairs: list[tuple[float, float]]) -> None:
    places = range(len(pairs))
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    axes.hlines(places, before, after, color=GREY, linewidth=1)
    for method, points in (("uncalibrated", before), ("adacalib", after)):
        axes.plot(
            points,
            places,
            linestyle="none",
            marker=MARKERS[method],
            color=COLORS[method],
            markersize=7,
            label=_SHOWN[method],
        )


def _pcoc_band(value: FieldValue) -> tuple[float, float]:
    sums = value.methods["adacalib"]
    return compute_pcoc_band(sums.n_samples, sums.score_sum / sums.weight)


def _pcoc(value: FieldValue, method: str) -> float:
    pcoc = value.methods[method].pcoc
    return PCOC_LIMITS[1] if pcoc is None else _limit(pcoc)


def _limit(ratio: float) -> float:
    return min(max(ratio, PCOC_LIMITS[0]), PCOC_LIMITS[1])
