"""Scaling-binning: a scaling function, averaged over equal-frequency bins (Kumar, Liang and Ma 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.baselines.platt import fit_platt
from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class ScalingBinning:
    """One probability per bin of the un-calibrated logit; it rises or falls throughout, as the scaling function does.

    Attributes:
        inner_bounds: bounds between the bins in log-odds, increasing, one fewer than bins; a bin is closed on its
            left: a logit on a bound belongs to the bin above it.
        bin_probabilities: mean output of the scaling function over the samples of each bin.
    """

    inner_bounds: Floats
    bin_probabilities: Floats

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The probability of the bin, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`.

        Logits beyond all cells of the fit get the probability of the outer bin.
        """
        probability = self.bin_probabilities[np.searchsorted(self.inner_bounds, logit, side="right")]
        return np.clip(probability, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_scaling_binning(cells: LogitCells, n_bins: int = 20) -> ScalingBinning:
    """Platt scaling, then the mean of its outputs per bin: labels enter the two parameters of the scaling only.

    The paper bins the outputs; Platt's are monotone in the logit, so bins of equal frequency on the logit are the
    same bins (`find_equal_frequency_bins`), and stay so where the slope is negative or 0. A cell stands for its
    samples with the output at its mean logit. The paper's proof gives the scaling, the bins and the means a third of
    the data each; here, as in the authors' library, all three see all of it.

    Args:
        cells: logit cells of the rows to fit on.
        n_bins: number of bins, at least 1; fewer come out where cells are few or heavy.

    Raises:
        NoCellsError: there are no cells.
        NotSettledError: the scaling's fit does not come to rest.
        BoundsError: `n_bins` is below 1.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    starts = find_equal_frequency_bins(pooled, n_bins)
    output = fit_platt(cells).predict(pooled.logit, pooled.field_value_id)
    return ScalingBinning(
        inner_bounds=pooled.cell[starts[1:]] / CELLS_PER_LOGIT,
        bin_probabilities=np.add.reduceat(pooled.weight * output, starts) / np.add.reduceat(pooled.weight, starts),
    )
