"""SIR: smoothed isotonic regression (Deng et al. 2020, Calibrating User Response Predictions in Online Advertising)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class SmoothIsotonic:
    """A never decreasing, piecewise-linear function from un-calibrated to calibrated probability.

    Attributes:
        score_knots: mean un-calibrated score of each pool of bins, a probability, increasing.
        rate_knots: rate of the pool, in [0, 1], increasing.
    """

    score_knots: Floats
    rate_knots: Floats

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The function's value, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`.

        Constant below the first and above the last knot.
        """
        rate: Floats = np.interp(expit(logit), self.score_knots, self.rate_knots)
        return np.clip(rate, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_sir(cells: LogitCells, n_bins: int = 100) -> SmoothIsotonic:
    """Bins, monotone bin rates, straight lines between.

    1. Equal-frequency bins of the pooled cells (`find_equal_frequency_bins`), rate Σy/Σw.
    2. Pool adjacent violators: neighbours in the wrong order become one pool whose rate is their mean weighted by Σw,
       and the pool is held against the one before it again, as long as it takes. So .3, .4, .05 of equal weight end
       as one pool of .25, although only the last two were in the wrong order at first.
    3. One knot per pool at its mean score; linear in the score (a probability, not log-odds) between knots.

    The knot stands at the pool's mean score, not in the middle of its bounds: scores in the top bins are so skewed
    that the middle is far from most of them. Beyond the outer knots, half a pool's samples on each side, the function
    is constant: lines to (0, 0) and (1, 1) would make an over-confident predictor's highest scores too high again.
    Labels of one class only give rate 0 or 1 throughout, which `predict` clips.

    Args:
        cells: logit cells of the rows to fit on.
        n_bins: number of bins, at least 1; fewer come out where cells are few or heavy.

    Raises:
        NoCellsError: there are no cells.
        BoundsError: `n_bins` is below 1.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    bin_starts = find_equal_frequency_bins(pooled, n_bins)
    bin_weight = np.add.reduceat(pooled.weight, bin_starts)
    bin_rate = np.clip(np.add.reduceat(pooled.response, bin_starts) / bin_weight, 0.0, 1.0)
    monotone = isotonic_regression(bin_rate, weights=bin_weight)
    pools = monotone.blocks[:-1]
    starts = bin_starts[pools]
    # a cell is 1/32 wide: the score at its mean logit is its mean score up to a relative 1e-4
    score_sum = np.add.reduceat(pooled.weight * expit(pooled.logit), starts)
    return SmoothIsotonic(
        score_knots=score_sum / np.add.reduceat(pooled.weight, starts),
        rate_knots=np.clip(monotone.x[pools], 0.0, 1.0),
    )
