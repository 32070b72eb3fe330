"""Own scores: log-odds, clip, negatives that were sampled, faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib.config import InputConfig
from adacalib.stats.own_scores import compute_logit, compute_own_logit, find_score_faults
from tests.assert_table import assert_table, collect_rows

LIMIT = math.log((1 - 1e-7) / 1e-7)
LOG_3, LOG_10 = math.log(3), math.log(10)


def given(kind: str = "probability", rate: float | None = None) -> InputConfig:
    return InputConfig(path="t", label="y", score="s", score_kind=kind, negative_sampling_rate=rate)  # type: ignore[arg-type]


def score_rows(spark: SparkSession, scores: list[float | None], config: InputConfig) -> list[tuple[float, bool]]:
    rows = spark.createDataFrame(list(enumerate(scores)), "i int, s double")
    logit, is_clipped = compute_own_logit(F.col("s"), config)
    found = collect_rows(rows.select("i", logit.alias("logit"), is_clipped.alias("is_clipped")), ["i"])
    return [(row["logit"], row["is_clipped"]) for row in found]


# The share w of negatives that was kept divides the odds of the rest: w = .1 turns p = .5 into
# .5 / (.5 + .5 / .1) = 1/11, log-odds -ln 10 = 0 + ln .1. 5e-7 becomes 5e-8, below the limit: clipped, though it was
# not before; log-odds of 17 were beyond it and are not any more; 0 and 1 stay.
@pytest.mark.parametrize(
    ("kind", "rate", "expected"),
    [
        (
            "probability",
            None,
            {0.0: (-LIMIT, True), 1.0: (LIMIT, True), 1e-7: (-LIMIT, False), 0.5: (0, False), 0.75: (LOG_3, False)},
        ),
        ("logit", None, {-40.0: (-LIMIT, True), 2.5: (2.5, False), 17.0: (LIMIT, True)}),
        ("probability", 1.0, {0.0: (-LIMIT, True), 0.75: (LOG_3, False), 1.0: (LIMIT, True)}),
        (
            "probability",
            0.1,
            {
                0.0: (-LIMIT, True),
                5e-7: (-LIMIT, True),
                0.5: (-LOG_10, False),
                1 - 2e-8: (math.log(5e7) - LOG_10, False),
                1.0: (LIMIT, True),
            },
        ),
        ("logit", 0.1, {-15.0: (-LIMIT, True), 2.5: (2.5 - LOG_10, False), 17.0: (17 - LOG_10, False)}),
    ],
)
def test_scores_become_log_odds_by_hand(
    spark: SparkSession, kind: str, rate: float | None, expected: dict[float, tuple[float, bool]]
) -> None:
    found = score_rows(spark, list(expected), given(kind, rate))
    np.testing.assert_allclose([logit for logit, _ in found], [logit for logit, _ in expected.values()], atol=2e-6)
    assert [clipped for _, clipped in found] == [clipped for _, clipped in expected.values()]


def test_the_sampling_rate_undoes_what_leaving_negatives_out_did(spark: SparkSession) -> None:
    # a model that saw all positives and a share w of the negatives gives p / (p + w (1 - p))
    truth, rate = np.array([0.001, 0.02, 0.3, 0.9]), 0.05
    sampled = truth / (truth + rate * (1 - truth))
    for kind, scores in (("probability", sampled), ("logit", np.log(sampled) - np.log1p(-sampled))):
        found = [logit for logit, _ in score_rows(spark, scores.tolist(), given(kind, rate))]
        np.testing.assert_allclose(1 / (1 + np.exp(-np.array(found))), truth, rtol=2e-6)


def test_without_scores_there_is_no_own_logit(spark: SparkSession) -> None:
    logit, is_clipped = compute_own_logit(None, given())
    row = spark.range(1).select(logit.alias("logit"), is_clipped.alias("is_clipped")).first()
    assert row is not None and (row["logit"], row["is_clipped"]) == (None, False)


@pytest.mark.parametrize(("kind", "n_outside"), [("probability", 2), ("logit", 0)])
def test_a_score_is_held_to_its_own_range_before_sampling_counts(
    spark: SparkSession, kind: str, n_outside: int
) -> None:
    scores = [None, math.nan, math.inf, -math.inf, 1.5, -0.5, 0.5]
    rows = spark.createDataFrame(list(enumerate(scores)), "i int, s double")
    faults = find_score_faults(F.col("s"), given(kind, rate=0.1))
    named = F.filter(F.array(*(F.when(bad, F.lit(why)) for bad, why in faults)), lambda x: x.isNotNull())
    found = [row["reasons"] for row in collect_rows(rows.select("i", named.alias("reasons")), ["i"])]
    assert found[:4] == [["score is null"], ["score is NaN"], ["score is infinite"], ["score is infinite"]]
    assert found[4:] == [["score is outside [0, 1]"]] * n_outside + [[]] * (3 - n_outside)


def test_faulty_scores_raise_nothing_before_they_are_rejected(spark: SparkSession) -> None:
    for kind in ("probability", "logit"):
        assert len(score_rows(spark, [None, math.nan, math.inf, -3.0, 2.0], given(kind, rate=0.1))) == 5


def test_logit_agrees_with_numpy(spark: SparkSession) -> None:
    scores = [1e-7, 0.001, 0.3, 0.5, 0.999, 1 - 1e-7]
    table = spark.createDataFrame([(p,) for p in scores], "p double").select("p", compute_logit(F.col("p")).alias("s"))
    expected = [{"p": p, "s": math.log(p / (1 - p))} for p in scores]
    assert_table(table, expected, ["p"], rtol=1e-9, atol=1e-12)
