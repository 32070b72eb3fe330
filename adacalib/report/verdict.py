"""Better, within noise or worse: what the figures say, in one sentence each, computed and never assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adacalib.report.data import METHODS
from adacalib.report.numbers import show_metric, show_p_value

Outcome = Literal["better", "worse", "mixed", "within noise", "not told apart"]

SIGNIFICANCE = 0.05
"""A paired difference counts below this p value."""

NAMES = {"field_rce": "Field-RCE", "log_loss": "LogLoss"}
"""The metrics that decide, both better when lower."""


@dataclass(frozen=True)
class Comparison:
    """AdaCalib against another method in one metric.

    Attributes:
        outcome: better, worse, within noise (by their paired difference), or not told apart (the metric or its
            spread is not defined, or all there is are two intervals that overlap).
        words: half a sentence with the figures and the evidence.
    """

    outcome: Outcome
    words: str


@dataclass(frozen=True)
class Verdict:
    """AdaCalib against another method.

    Attributes:
        outcome: mixed where one metric is better and the other worse.
        title: says it in a few words.
        sentence: says it with figures.
    """

    outcome: Outcome
    title: str
    sentence: str


def compare(metrics: Mapping[str, Any], other: str, metric: str) -> Comparison:
    """Compares AdaCalib with another method, by their paired difference where metrics.json has it, else by their
    separate intervals: apart they tell, but overlapping they do not mean that the difference is noise.

    Args:
        metrics: the content of metrics.json, or of one of its other fields with the key methods.
        other: a method.
        metric: a key of NAMES; lower is better.
    """
    ours, theirs = metrics["methods"]["adacalib"], metrics["methods"][other]
    before, after = theirs.get(metric), ours.get(metric)
    if before is None or after is None:
        return Comparison("not told apart", f"{NAMES[metric]} is not defined on this test set")
    shown = [show_metric(metric, value) for value in (before, after)]
    verb = "stays at" if shown[0] == shown[1] else "falls from" if after < before else "rises from"
    words = f"{NAMES[metric]} {verb} {shown[0]}" + ("" if shown[0] == shown[1] else f" to {shown[1]}")
    pair = (metrics.get("paired_differences") or {}).get(f"adacalib_minus_{other}") or {}
    if difference := pair.get(metric):
        significant = difference["p_value"] < SIGNIFICANCE
        evidence = show_p_value(difference["p_value"]) + ("" if significant else ", within noise")
    else:
        intervals = [values.get("intervals", {}).get(metric) for values in (ours, theirs)]
        if None in intervals:
            return Comparison("not told apart", f"{words} (too few test samples for an interval)")
        (low, high), (other_low, other_high) = intervals
        significant = high < other_low or other_high < low
        if not significant:
            return Comparison("not told apart", f"{words} (intervals overlap)")
        evidence = "intervals apart"
    outcome: Outcome = "within noise" if not significant else "better" if after < before else "worse"
    return Comparison(outcome, f"{words} ({evidence})")


def judge(metrics: Mapping[str, Any], other: str) -> Verdict:
    """AdaCalib against another method in Field-RCE and LogLoss together.

    Better: at least one is better beyond noise and none worse; worse likewise; mixed: one of each.

    Args:
        metrics: the content of metrics.json.
        other: a method.
    """
    comparisons = [compare(metrics, other, metric) for metric in NAMES]
    outcome = _join({comparison.outcome for comparison in comparisons})
    name = METHODS[other]
    title = {
        "better": f"Better than {name}",
        "worse": f"Worse than {name}",
        "mixed": f"Mixed against {name}",
        "within noise": f"Within noise of {name}",
        "not told apart": f"Not told apart from {name}",
    }[outcome]
    return Verdict(outcome, title, f"Compared with {name}, " + "; ".join(found.words for found in comparisons) + ".")


def describe_reach(metrics: Mapping[str, Any]) -> str | None:
    """How near AdaCalib's Field-RCE is to what is possible; None where a level is not defined."""
    values = metrics["methods"]["adacalib"]
    rce, attainable = values.get("field_rce"), values.get("field_rce_attainable")
    floor = values.get("field_rce_noise_floor")
    if rce is None or not attainable or floor is None:
        return None
    return (
        f"A correct calibrator fitted on as many samples would score about {show_metric('field_rce', attainable)} "
        f"(attainable) and the truth itself {show_metric('field_rce', floor)} (noise floor): "
        f"AdaCalib's Field-RCE is {rce / attainable:.2f} × the attainable level."
    )


def _join(outcomes: set[Outcome]) -> Outcome:
    if {"better", "worse"} <= outcomes:
        return "mixed"
    for outcome in ("better", "worse", "within noise"):
        if outcome in outcomes:
            return outcome
    return "not told apart"
