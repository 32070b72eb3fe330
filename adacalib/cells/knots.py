"""Knots of every field value: log-odds after the value effects, moved by shrunken bin shifts, made monotone.

Shape letters: V field values, K bins (padded), J = K + 1 bounds (padded).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, gammaln

from adacalib.cells.bin_bounds import BinBounds, add_up, find_cell_bins
from adacalib.cells.logit_cells import Floats, Ints, LogitCells

LOG_STRENGTH_LIMITS = (-3.0, 9.0)
"""Limits of log m; the upper end means that there is no bin effect."""

SHIFT_LIMIT = 2.0
MIN_SLOPE = 0.02


@dataclass(frozen=True)
class BinShifts:
    """What the bins say beyond the value effects.

    Attributes:
        shift_VK: log-odds, within ±SHIFT_LIMIT; 0 in an empty bin, in the padding and for id 0.
        weight_VK: sum of sample weights of the bin.
        strength: m, the pseudo-responses that a bin is shrunk with; large means little shift.
    """

    shift_VK: Floats
    weight_VK: Floats
    strength: float


def compute_bin_shifts(cells: LogitCells, bounds: BinBounds, effect_logit: Floats) -> BinShifts:
    """Shrunken shift of every bin (algorithm.md step 3).

    With p = σ(η), P = Σy, E = Σp, V = clip(Σp(1-p)/Σp, .05, 1) and rate = E/n, a bin's shift is
    clip(log((P/V + m)/(E/V + m)) / max(1 - rate, .1), ±2). One strength m for all bins with cells, by maximum
    likelihood of a negative binomial for P/V with mean E/V (`fit_strength`).

    Args:
        cells: logit cells.
        bounds: bounds of each field value.
        effect_logit: η of each cell, log-odds.

    Cells of id 0 take no part, and id 0 has no shift: it stands for values never seen.
    """
    shape = (cells.n_values, bounds.bin_bounds_VJ.shape[1] - 1)
    seen = cells.field_value_id > 0
    slot = (cells.field_value_id * shape[1] + find_cell_bins(cells, bounds))[seen]
    probability = expit(effect_logit)

    def add(values: Floats) -> Floats:
        return add_up(slot, values[seen], shape)

    weight, response, expected = add(cells.weight), add(cells.response), add(cells.weight * probability)
    variance = add(cells.weight * probability * (1 - probability))
    filled = expected > 0
    dispersion = np.clip(variance[filled] / expected[filled], 0.05, 1.0)
    observed, mean = response[filled] / dispersion, expected[filled] / dispersion
    strength = fit_strength(observed, mean)
    rate = expected[filled] / weight[filled]
    shift = np.zeros(shape)
    shift[filled] = np.log((observed + strength) / (mean + strength)) / np.maximum(1 - rate, 0.1)
    return BinShifts(np.clip(shift, -SHIFT_LIMIT, SHIFT_LIMIT), weight, strength)


def fit_strength(observed: Floats, mean: Floats) -> float:
    """Maximum-likelihood strength m: `observed` negative binomial with means `mean` and shape m.

    log m is searched within LOG_STRENGTH_LIMITS to .01; without bins it is at the upper end (no bin effect).

    Args:
        observed: counts >= 0, need not be whole.
        mean: expected counts > 0.
    """
    if not len(mean):
        return float(np.exp(LOG_STRENGTH_LIMITS[1]))

    def loss(log_strength: float) -> float:
        m = np.exp(log_strength)
        # log Γ(x + m) - log Γ(m) - x log(μ + m) - m log(1 + μ/m); what does not depend on m is left out
        likelihood = gammaln(observed + m) - gammaln(m) - observed * np.log(mean + m) - m * np.log1p(mean / m)
        return -float(np.sum(likelihood))

    found = minimize_scalar(loss, bounds=LOG_STRENGTH_LIMITS, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def spread_to_bounds(shifts: BinShifts) -> Floats:
    """Shift at every bound, V × J: the weighted mean of the two bins that meet there, at an outer bound its bin's."""
    weight_VJ, weighted_VJ = (
        np.pad(values, ((0, 0), (0, 1))) + np.pad(values, ((0, 0), (1, 0)))
        for values in (shifts.weight_VK, shifts.weight_VK * shifts.shift_VK)
    )
    return np.divide(weighted_VJ, weight_VJ, out=np.zeros_like(weight_VJ), where=weight_VJ > 0)


def make_monotone(knots_VJ: Floats, bounds: BinBounds) -> Floats:
    """Knots that rise by at least MIN_SLOPE per unit of logit: pool adjacent violators of knot - .02·bound.

    Args:
        knots_VJ: log-odds at the bounds; the padding is ignored and comes back as the last knot.
        bounds: bounds of each field value.
    """
    line_VJ = MIN_SLOPE * bounds.filled_VJ
    pooled_VJ = pool_adjacent_violators(knots_VJ - line_VJ, bounds.n_bins_V + 1)
    return pooled_VJ + line_VJ


def pool_adjacent_violators(values_VJ: Floats, length_V: Ints) -> Floats:
    """The nearest never decreasing sequence of every row, in squared distance.

    All rows advance together from left to right, each with its own stack of pooled blocks.

    Args:
        values_VJ: one sequence per row.
        length_V: how many of a row's entries count, at least 1; the others come back as the last of these.
    """
    n_rows, width = values_VJ.shape
    sum_VJ, size_VJ = np.zeros((n_rows, width)), np.zeros((n_rows, width), np.int64)
    top_V = np.full(n_rows, -1)
    for column in range(width):
        row = np.flatnonzero(length_V > column)
        top_V[row] += 1
        sum_VJ[row, top_V[row]], size_VJ[row, top_V[row]] = values_VJ[row, column], 1
        row = row[top_V[row] > 0]
        while len(row):
            top, below = top_V[row], top_V[row] - 1
            violates = sum_VJ[row, below] * size_VJ[row, top] > sum_VJ[row, top] * size_VJ[row, below]
            row, top, below = row[violates], top[violates], below[violates]
            sum_VJ[row, below] += sum_VJ[row, top]
            size_VJ[row, below] += size_VJ[row, top]
            top_V[row] -= 1
            row = row[top_V[row] > 0]
    used_VJ = np.arange(width) <= top_V[:, None]
    mean_VJ = np.divide(sum_VJ, size_VJ, out=np.zeros_like(sum_VJ), where=used_VJ)
    size_VJ[np.arange(n_rows), top_V] += width - length_V  # the padding belongs to the last block
    return np.repeat(mean_VJ[used_VJ], size_VJ[used_VJ]).reshape(n_rows, width)
