"""Pictures of what was learned: functions, numbers of bins, loss curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adacalib.report.data import ChosenBins, LearnedFunction, ReportData, shorten
from adacalib.report.numbers import compute_rate_interval
from adacalib.report.pictures import COLORS, GREY, SEQUENCE, Picture, hide, make_picture, use_whole_numbers

N_DECILES = 10


def draw_functions(data: ReportData) -> Picture | None:
    """Learned functions over the posteriors they were learned from (Fig. 3 of the paper); None without any."""
    functions = data.functions
    if not functions:
        return None
    n_rows = -(-len(functions) // 2)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(n_rows, min(len(functions), 2), squeeze=False).ravel()
        for axes in panels[len(functions) :]:
            hide(axes)
        for axes, function in zip(panels, functions, strict=False):
            _draw_function(axes, function)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

    is_robust = data.config.calibrator.mode == "robust"
    sparse = " Where samples are few, the function leans on what all values have in common." if is_robust else ""
    has_network = data.config.has_auxiliary_network
    shrinks = data.training.get("forward_slope", 1.0) < 1
    network = "the auxiliary network, the re-level after it" + (" and the forward slope" if shrinks else "")
    left_out = f", before {network}" if has_network else ""
    holds = " The forward slope is in it, so that it is flatter than the points." if shrinks and not has_network else ""
    return make_picture(
        "functions",
        "Learned functions over their posteriors",
        f"Four values of {data.config.field} of different frequency, or as many as there are. Points: the response "
        "rate observed in each bin of train ∪ dev with its 95 % interval. Lines run through the bounds between bins: "
        f"the un-calibrated score there, and what the learned function makes of it{left_out}.{holds}{sparse}",
        0.6 + 3.6 * n_rows,
        draw,
    )


def _draw_function(axes: Axes, function: LearnedFunction) -> None:
    n_bins = len(function.bin_rate)
    bounds = np.arange(n_bins + 1) - 0.5
    for method, heights in (("uncalibrated", function.uncalibrated), ("adacalib", function.calibrated)):
        style = "--" if method == "uncalibrated" else "-"
        name = "un-calibrated score" if method == "uncalibrated" else "AdaCalib's function"
        axes.plot(bounds, heights, color=COLORS[method], linestyle=style, linewidth=1.8, label=name)
    filled = [k for k in range(n_bins) if function.bin_rate[k] is not None and function.bin_samples[k] > 0]
    rate = np.array([function.bin_rate[k] for k in filled], float)
    ends = [compute_rate_interval(r, function.bin_samples[k]) for r, k in zip(rate, filled, strict=True)]
    if filled:
        error = np.clip(np.abs(np.array(ends).T - rate), 0, None)
        axes.errorbar(
            filled, rate, yerr=error, fmt="o", color="black", markersize=4, elinewidth=0.9, capsize=2, label="posterior"
        )
    axes.set_title(
        f"{shorten(function.label)}\n{function.n_samples:,} samples, {function.n_responses:,} responses, {n_bins} bins"
    )
    axes.set_xlim(-0.7, n_bins - 0.3)
    axes.set_ylim(bottom=0)
    use_whole_numbers(axes)
    axes.set_xlabel("bin index (lines: bounds of the bins)")
    axes.set_ylabel("probability")


def draw_chosen_bins(data: ReportData) -> Picture | None:
    """Share of field values that choose each number of bins, by decile of positives (Fig. 4 of the paper).

    None without adaptive binning.
    """
    if not data.chosen_bins:
        return None
    groups = split_into_deciles(data.chosen_bins)
    candidates = sorted(set(data.config.n_bins_candidates) | {chosen.n_bins for chosen in data.chosen_bins})

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        below = np.zeros(len(groups))
        for place, candidate in enumerate(candidates):
            share = np.array([np.mean([chosen.n_bins == candidate for chosen in group]) for group in groups])
            color = SEQUENCE[place % len(SEQUENCE)]
            axes.bar(range(len(groups)), share, bottom=below, color=color, edgecolor="white", label=f"{candidate} bins")
            below += share
        axes.set_xticks(range(len(groups)), [_name_group(place, group) for place, group in enumerate(groups)])
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylabel("share of field values")
        axes.set_xlabel("group of field values and their responses in train ∪ dev, fewest to most")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(len(candidates), 6))

    return make_picture(
        "chosen_bins",
        "Number of bins chosen, by decile of positives",
        f"The values of {data.config.field} in {len(groups)} groups of about equal size by their number of responses, "
        "and what adaptive binning chose in each.",
        4.2,
        draw,
    )


def split_into_deciles(chosen: Sequence[ChosenBins]) -> list[list[ChosenBins]]:
    """Sorts field values by positives and cuts them into ten groups of sizes that differ by one at most.

    Fewer groups come out when there are fewer field values; none is empty.
    """
    ordered = sorted(chosen, key=lambda entry: (entry.n_responses, entry.n_bins))
    parts = np.array_split(np.arange(len(ordered)), min(N_DECILES, len(ordered)))
    return [[ordered[k] for k in part] for part in parts]


def _name_group(place: int, group: list[ChosenBins]) -> str:
    fewest, most = group[0].n_responses, group[-1].n_responses
    return f"{place + 1}\n{fewest:,}" + ("" if fewest == most else f"\n–{most:,}")


def draw_loss_curves(data: ReportData) -> Picture | None:
    """Loss by epoch of the predictor and of each variant of the calibrator's network; None where nothing trained."""
    panels = list_loss_panels(data)
    if not panels:
        return None

    def draw(figure: Figure) -> None:
        for axes, (title, curves, chosen) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw_curves(axes, curves, chosen)
            axes.set_title(title)
        figure.axes[0].set_ylabel("loss per sample")

    return make_picture(
        "loss_curves",
        "Loss curves",
        "Mean loss by epoch, on the rows trained on (while the parameters moved) and on held-out rows; epoch 0 is "
        "before any step. The dotted line marks the epoch that was chosen.",
        3.6,
        draw,
    )


Panel = tuple[str, dict[str, list[tuple[int, float]]], int | None]


def list_loss_panels(data: ReportData) -> list[Panel]:
    """Title, curves (name → points of epoch and loss) and kept epoch of each panel.

    Paper mode trains on the sum of Eq. 7, which is no cross-entropy of one score: it gets a panel of its own.
    """
    panels: list[Panel] = []
    if data.predictor_curve:
        panels.append(("predictor (held-out: dev)", _read_curves(data.predictor_curve), None))
    kept = data.training.get("chosen_epoch")
    for variant, records in (data.training.get("loss_curves") or {}).items():
        curves = _read_curves(records)
        if variant == "paper":
            panels += [
                (title, {name: curves[name]}, kept)
                for title, name in (("calibrator: objective (Eq. 7)", "training"), ("calibrator: mixture", "held-out"))
                if name in curves
            ]
            continue
        panels.append(("auxiliary network" if variant == "auxiliary" else variant, curves, kept))
    return [panel for panel in panels if panel[1]]


def _read_curves(records: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    curves = {
        name: [(entry["epoch"], entry[key]) for entry in records if entry.get(key) is not None]
        for name, key in (("training", "training_loss"), ("held-out", "held_out_loss"))
    }
    return {name: points for name, points in curves.items() if points}


def _draw_curves(axes: Axes, curves: Mapping[str, list[tuple[int, float]]], chosen: int | None) -> None:
    colors = {"training": COLORS["uncalibrated"], "held-out": COLORS["adacalib"]}
    styles = {"training": ("o", "--"), "held-out": ("D", "-")}
    for name, points in curves.items():
        marker, line = styles[name]
        epochs, losses = zip(*points, strict=True)
        axes.plot(epochs, losses, marker=marker, linestyle=line, color=colors[name], markersize=4, label=name)
    if chosen is not None:
        axes.axvline(chosen, color=GREY, linestyle=":", linewidth=1.5)
    use_whole_numbers(axes)
    axes.set_xlabel("epoch")
    axes.legend(loc="best")
