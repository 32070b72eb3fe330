"""Reliability: observed rate against mean score in equal-frequency bins of a method's own score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.cells.bin_bounds import TIE
from adacalib.cells.logit_cells import Floats, Ints

_Z = 1.959963984540054  # 95 % of a normal


@dataclass(frozen=True)
class Reliability:
    """One entry per bin that has samples, in order of the score.

    Attributes:
        mean_score: weighted mean score, probability.
        response_rate: weighted rate of label 1.
        rate_low: lower end of the rate's 95 % Wilson interval.
        rate_high: its upper end.
        n_samples: number of rows.
    """

    mean_score: Floats
    response_rate: Floats
    rate_low: Floats
    rate_high: Floats
    n_samples: Ints


def compute_reliability(
    cell: Ints, weight: Floats, response: Floats, score_sum: Floats, n_samples: Ints, n_bins: int
) -> Reliability:
    """Puts score cells into n_bins bins of equal weight (a cell goes whole to the bin of its mid-rank) and adds up.

    Args:
        cell: index of the score cell, increasing with the score; in any order, a cell may repeat.
        weight: sum of sample weights, > 0.
        response: weighted sum of labels.
        score_sum: weighted sum of scores.
        n_samples: number of rows.
        n_bins: at least 1; with few cells fewer bins come out.
    """
    order = np.argsort(cell, kind="stable")
    cell, n_samples = cell[order], n_samples[order]
    weight, response, score_sum = weight[order], response[order], score_sum[order]
    if not len(cell):
        nothing = np.zeros(0)
        return Reliability(nothing, nothing, nothing, nothing, np.zeros(0, np.int64))
    starts = np.flatnonzero(np.append(True, np.diff(cell) > 0))
    total = np.add.reduceat(weight, starts)
    mid_rank = (np.cumsum(total) - total / 2) / total.sum()
    place = np.repeat(
        np.minimum((mid_rank * n_bins + TIE).astype(np.int64), n_bins - 1), np.diff(np.append(starts, len(cell)))
    )

    def add(values: Floats | Ints) -> Floats:
        return np.asarray(np.bincount(place, weights=values, minlength=n_bins)[filled], np.float64)

    filled = np.bincount(place, minlength=n_bins) > 0
    bin_weight, n = add(weight), np.rint(add(n_samples)).astype(np.int64)
    rate = np.clip(add(response) / bin_weight, 0.0, 1.0)
    center = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * np.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    return Reliability(add(score_sum) / bin_weight, rate, np.maximum(center - half, 0), np.minimum(center + half, 1), n)
