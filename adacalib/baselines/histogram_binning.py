"""HistoBin: histogram binning of all field values together (Zadrozny & Elkan 2001)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class HistogramBinning:
    """One rate per bin of the un-calibrated logit; it may fall from one bin to the next.

    Attributes:
        inner_bounds: bounds between the bins in log-odds, increasing, one fewer than bins; a bin is closed on its
            left: a logit on a bound belongs to the bin above it.
        bin_rates: rate of each bin, in [0, 1].
    """

    inner_bounds: Floats
    bin_rates: Floats

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The rate of the logit's bin, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`.

        Logits beyond all cells of the fit get the rate of the outer bin.
        """
        rate = self.bin_rates[np.searchsorted(self.inner_bounds, logit, side="right")]
        return np.clip(rate, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_histogram_binning(cells: LogitCells, n_bins: int = 10) -> HistogramBinning:
    """Rate Σy/Σw of each equal-frequency bin of the pooled cells.

    Bins are those of `find_equal_frequency_bins`; their inner bounds are cell edges, so fit and prediction put a
    sample into the same bin. A bin without a response has rate 0, one of responses only rate 1: nothing is smoothed,
    `predict` clips. The same holds for labels of one class throughout.

    Args:
        cells: logit cells of the rows to fit on.
        n_bins: number of bins, at least 1; fewer come out where cells are few or heavy.

    Raises:
        NoCellsError: there are no cells.
        BoundsError: `n_bins` is below 1.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    starts = find_equal_frequency_bins(pooled, n_bins)
    rates = np.add.reduceat(pooled.response, starts) / np.add.reduceat(pooled.weight, starts)
    return HistogramBinning(
        inner_bounds=pooled.cell[starts[1:]] / CELLS_PER_LOGIT,
        bin_rates=np.clip(rates, 0.0, 1.0),
    )
