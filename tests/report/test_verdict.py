"""The verdict says what the figures say, also when they are bad."""

from __future__ import annotations

from typing import Any

import pytest

from adacalib.report.verdict import compare, describe_reach, judge
from tests.report.small_report import make_difference, make_method


def make_pair(
    before: tuple[float | None, float | None], after: tuple[float | None, float | None], **paired: Any
) -> dict[str, Any]:
    """Metrics of two methods: (Field-RCE, LogLoss) each, and their paired differences."""
    return {
        "methods": {"uncalibrated": make_method(*before), "adacalib": make_method(*after)},
        "paired_differences": {"adacalib_minus_uncalibrated": paired},
    }


@pytest.mark.parametrize(
    ("rce", "loss", "outcome", "title"),
    [
        ((-0.1, 0.01), (-0.01, 0.01), "better", "Better than un-calibrated"),
        ((-0.1, 0.049), (0.01, 0.3), "better", "Better than un-calibrated"),
        ((-0.1, 0.3), (0.01, 0.3), "within noise", "Within noise of un-calibrated"),
        ((-0.1, 0.05), (0.01, 0.05), "within noise", "Within noise of un-calibrated"),
        ((0.1, 0.001), (-0.01, 0.3), "worse", "Worse than un-calibrated"),
        ((0.1, 0.001), (0.01, 0.001), "worse", "Worse than un-calibrated"),
        ((-0.1, 0.001), (0.01, 0.001), "mixed", "Mixed against un-calibrated"),
    ],
)
def test_paired_differences_decide(
    rce: tuple[float, float], loss: tuple[float, float], outcome: str, title: str
) -> None:
    metrics = make_pair(
        (0.2, 0.5),
        (0.2 + rce[0], 0.5 + loss[0]),
        field_rce=make_difference(*rce),
        log_loss=make_difference(*loss),
    )
    verdict = judge(metrics, "uncalibrated")
    assert (verdict.outcome, verdict.title) == (outcome, title)


def test_sentence_has_figures_direction_and_evidence() -> None:
    metrics = make_pair(
        (0.2, 0.5), (0.05, 0.502), field_rce=make_difference(-0.15, 1e-9), log_loss=make_difference(0.002, 0.31)
    )
    assert judge(metrics, "uncalibrated").sentence == (
        "Compared with un-calibrated, Field-RCE falls from 0.2000 to 0.0500 (p < 0.001); "
        "LogLoss rises from 0.50000 to 0.50200 (p = 0.31, within noise)."
    )


def test_without_paired_differences_intervals_that_are_apart_decide() -> None:
    # intervals ± .01: .2 and .1 are apart, .5 and .495 overlap, which does not say that they are equal
    assert compare(make_pair((0.2, 0.5), (0.1, 0.495)), "uncalibrated", "field_rce").outcome == "better"
    assert compare(make_pair((0.1, 0.5), (0.2, 0.5)), "uncalibrated", "field_rce").outcome == "worse"
    overlapping = compare(make_pair((0.2, 0.5), (0.1, 0.495)), "uncalibrated", "log_loss")
    assert overlapping.outcome == "not told apart" and "intervals overlap" in overlapping.words


def test_undefined_metrics_and_missing_intervals_are_said() -> None:
    verdict = judge(make_pair((None, None), (None, None)), "uncalibrated")
    assert verdict.outcome == "not told apart" and "Field-RCE is not defined on this test set" in verdict.sentence
    metrics = make_pair((0.2, 0.5), (0.1, 0.4))
    metrics["methods"]["adacalib"]["intervals"] = {}
    assert "too few test samples" in judge(metrics, "uncalibrated").sentence


def test_equal_figures_stay() -> None:
    assert compare(make_pair((0.2, 0.5), (0.2, 0.5)), "uncalibrated", "log_loss").words.startswith(
        "LogLoss stays at 0.50000 ("
    )


def test_reach_compares_with_the_attainable_level() -> None:
    reach = describe_reach({"methods": {"adacalib": make_method(0.03)}})  # attainable .02
    assert reach is not None and "1.50 × the attainable level" in reach
    assert describe_reach({"methods": {"adacalib": make_method(None)}}) is None
    assert describe_reach({"methods": {"adacalib": make_method(0.03, field_rce_attainable=None)}}) is None
