"""IsoReg: one isotonic regression for all field values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values

_ROUNDING = 1e-12  # rates are weighted means: 0 and 1 are met up to rounding


@dataclass(frozen=True)
class Isotonic:
    """A never decreasing function from log-odds to a rate: flat on each block, linear between blocks.

    Attributes:
        logit_knots: first and last mean logit of each block's cells, never decreasing.
        rate_knots: the block's rate, in [0, 1], never decreasing.
        lowest_rate: a positive rate for where the function is 0 (see `fit_isotonic`).
        highest_rate: a rate below 1 for where it is 1.
    """

    logit_knots: Floats
    rate_knots: Floats
    lowest_rate: float
    highest_rate: float

    def rate(self, logit: Floats) -> Floats:
        """The function's value, in [0, 1]; constant beyond the ends."""
        value: Floats = np.interp(logit, self.logit_knots, self.rate_knots)
        return value

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The rate, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`."""
        return np.clip(self.rate(logit), PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_isotonic(cells: LogitCells) -> Isotonic:
    """Pool adjacent violators on the rates of the pooled cells, at their mean logits.

    Labels of one class only give one block with rate 0 or 1.

    `lowest_rate` serves who needs log-odds: it is the first block's rate; where that is 0, the rate of its weight
    n with half an average sample added, .5·ȳ/(n + .5), but never more than the next block's rate, so that the
    order stays (without a next block ȳ is taken as .5). `highest_rate` mirrors it.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    rates = isotonic_regression(np.clip(pooled.response / pooled.weight, 0.0, 1.0), weights=pooled.weight)
    starts, ends = rates.blocks[:-1], rates.blocks[1:] - 1
    block_rate = np.clip(rates.x[starts], 0.0, 1.0)
    block_weight = np.add.reduceat(pooled.weight, starts)
    mean_label = float(pooled.response.sum() / pooled.weight.sum()) if len(starts) > 1 else 0.5
    lowest_rate = _positive_end(block_rate, block_weight, mean_label)
    highest_rate = 1 - _positive_end(1 - block_rate[::-1], block_weight[::-1], 1 - mean_label)
    if lowest_rate > highest_rate:  # one block of one class: the smoothed side counts for both
        lowest_rate = highest_rate = lowest_rate if block_rate[0] < 0.5 else highest_rate
    return Isotonic(
        logit_knots=np.stack([pooled.logit[starts], pooled.logit[ends]], axis=1).ravel(),
        rate_knots=np.repeat(block_rate, 2),
        lowest_rate=lowest_rate,
        highest_rate=highest_rate,
    )


def _positive_end(block_rate: Floats, block_weight: Floats, mean_label: float) -> float:
    if block_rate[0] > _ROUNDING:
        return float(block_rate[0])
    smoothed = 0.5 * mean_label / (block_weight[0] + 0.5)
    return float(min(smoothed, block_rate[1]) if len(block_rate) > 1 else smoothed)
