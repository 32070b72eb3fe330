"""What the calibrator learned, in a table that says what each figure means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from adacalib.report.data import ReportData
from adacalib.report.numbers import show, show_count
from adacalib.report.tables import Cell, Table


def make_learned_table(data: ReportData) -> Table:
    """One row per figure of training.json that a reader can use; what a run does not have is left out."""
    training = data.training
    rows = [(name, value, meaning) for name, value, meaning in _list_rows(training) if value]
    if data.chosen_bins:
        counts = Counter(chosen.n_bins for chosen in data.chosen_bins)
        shown = ", ".join(f"{n_bins} bins: {n:,}" for n_bins, n in sorted(counts.items()))
        rows.append(("adaptive binning", shown, "how many field values chose each number of bins"))
    return Table(
        ["part", "learned", "meaning"],
        [
            [Cell(name, is_number=False), Cell(value, is_number=False), Cell(text, is_number=False)]
            for name, value, text in rows
        ],
    )


def _list_rows(training: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("mode", str(training.get("mode", "")), "robust: posteriors shrunken under sparsity; paper: as published"),
        (
            "field part",
            {"robust": "one function per field value", "global_curve": "the global curve alone"}.get(
                str(training.get("field_part")), ""
            ),
            "do no harm: held-out loss decides whether field values get functions of their own "
            + _show_losses(training, "held_out_loss_robust", "held_out_loss_global_curve"),
        ),
        (
            "spread of levels",
            _show(training, "tau_level", 3),
            "prior standard deviation of the field values' levels, in log-odds; near 0: the field has no effect",
        ),
        (
            "spread of slopes",
            _show(training, "tau_slope", 3),
            "the same of the slopes; near 0: all values share one slope",
        ),
        (
            "bin strength",
            _show_strength(training.get("bin_strength")),
            "expected responses at which a bin counts half by itself; very large: bins add nothing to level and slope",
        ),
        (
            "forward slope",
            _show_slope(training),
            "what calibrated log-odds shrink by: a fit to the earlier days asks for it on the later ones, so this one "
            "will on the days to come",
        ),
        (
            "kept epoch",
            _show_network(training),
            "epoch of training with the least held-out loss; 0: the network adds nothing; where rows are split by date "
            "it was then trained for as many epochs on all rows",
        ),
    ]


def _show(training: Mapping[str, Any], key: str, digits: int) -> str:
    return "" if training.get(key) is None else show(training[key], digits)


def _show_slope(training: Mapping[str, Any]) -> str:
    if training.get("forward_slope_measured") is None:
        return ""
    measured, error = (show(training[f"forward_slope_{name}"], 3) for name in ("measured", "error"))
    return f"{show(training['forward_slope'], 3)} (measured {measured} ± {error})"


def _show_strength(strength: float | None) -> str:
    return "" if strength is None else show_count(float(round(strength))) if strength >= 10 else show(strength, 2)


def _show_losses(training: Mapping[str, Any], own: str, shared: str) -> str:
    if training.get(own) is None or training.get(shared) is None:
        return ""
    return f"({show(training[own], 5)} with, {show(training[shared], 5)} without)"


def _show_network(training: Mapping[str, Any]) -> str:
    if training.get("chosen_epoch") is None:
        return ""
    return str(training["chosen_epoch"])
