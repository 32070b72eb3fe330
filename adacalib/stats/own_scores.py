"""The user's own score → un-calibrated log-odds, and what makes a score unusable."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import LOGIT_LIMIT, PROBABILITY_LIMIT
from adacalib.config import InputConfig


def compute_logit(probability: Column) -> Column:
    """Log-odds of a probability within (0, 1).

    >>> spark.range(1).select(F.round(compute_logit(F.lit(0.75)), 6).alias("logit")).first().logit
    1.098612
    """
    return F.log(probability) - F.log1p(-probability)


def find_score_faults(score: Column, config: InputConfig) -> list[tuple[Column, str]]:
    """(condition, reason) for every way in which a score is none; a row meets at most one of them.

    Args:
        score: double, as the table has it: a probability or log-odds, by `config.score_kind`.
    """
    faults = [
        (score.isNull(), "score is null"),
        (F.isnan(score), "score is NaN"),
        (is_infinite(score), "score is infinite"),
    ]
    if config.score_kind == "probability":
        outside = ((score < 0) | (score > 1)) & ~F.isnan(score) & ~is_infinite(score)
        faults.append((outside, "score is outside [0, 1]"))
    return faults


def compute_own_logit(score: Column | None, config: InputConfig) -> tuple[Column, Column]:
    """The user's score as log-odds, clipped to the logits of [1e-7, 1 - 1e-7], and whether it had to be clipped.

    Negatives that were left out of the score's training come back first: p / (p + (1 - p) / w), w the share that was
    kept, or logit + log(w) (He et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook, section 6.3).

    Args:
        score: as in `find_score_faults`; None where the run has a predictor.

    Returns:
        (float, null without a score; boolean). A row with a faulty score has values without meaning.
    """
    if score is None:
        return F.lit(None).cast("float"), F.lit(False)
    rate = config.negative_sampling_rate
    if config.score_kind == "probability":
        low, high = PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT
        # a faulty score's logarithm is never taken: ANSI mode or not, such a row only carries its reasons
        usable = F.when((score >= 0) & (score <= 1), score).otherwise(F.lit(0.5))
        given = usable if rate is None else usable / (usable + (1 - usable) / F.lit(rate))
        logit = compute_logit(F.greatest(F.lit(low), F.least(F.lit(high), given)))
    else:
        low, high = -LOGIT_LIMIT, LOGIT_LIMIT
        given = score if rate is None else score + F.lit(math.log(rate))
        logit = F.greatest(F.lit(low), F.least(F.lit(high), given))
    return logit.cast("float"), (given < low) | (given > high)


def is_infinite(column: Column) -> Column:
    """Whether a number is ∞ or -∞; null for null."""
    return F.abs(column) == F.lit(float("inf"))
