"""HistoBin per field value: every value has its own equal-frequency bins and its own rates.

Shape letters: V field values (row 0 is all of them pooled), K bins (padded).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from adacalib.cells.bin_bounds import TIE, BoundsError, add_up, find_bin_index, require_cells
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values


@dataclass(frozen=True)
class HistogramPerValue:
    """One rate per field value and bin of its un-calibrated logit.

    Attributes:
        lower_bounds_VK: where each bin begins in log-odds, increasing, then +inf in the padding; a bin is closed on
            its left, and the first one also takes what lies below it.
        bin_rates_VK: rate of each bin, in [0, 1]; 0 in the padding.
        n_bins_V: number of bins, 0 for a value without cells.
    """

    lower_bounds_VK: Floats
    bin_rates_VK: Floats
    n_bins_V: Ints

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The rate of the value's bin, within [1e-7, 1 - 1e-7]; see `Baseline`.

        Id 0, ids without cells in the fit and ids beyond those of the fit get the rate of the pooled bins.
        """
        known = (field_value_id > 0) & (field_value_id < len(self.n_bins_V))
        row = np.where(known, field_value_id, 0)
        row = np.where(self.n_bins_V[row] > 0, row, 0)
        rate: Floats = self.bin_rates_VK[row, find_bin_index(self.lower_bounds_VK, self.n_bins_V, row, logit)]
        return np.clip(rate, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_histogram_per_value(cells: LogitCells, n_bins: int = 10) -> HistogramPerValue:
    """Rate Σy/Σw of each equal-frequency bin of each field value, and of all values pooled (Zadrozny & Elkan 2001).

    Within its value a cell goes whole to bin ⌊n_bins · mid-rank⌋, mid-rank = (weight before it + half its own) / the
    value's weight; on the border of two bins, up to TIE, it goes to the upper one. Empty bins vanish, so a value has
    at most as many bins as cells. Nothing is smoothed or borrowed from other values: a bin, or a whole value, of one
    class has rate 0 or 1, which `predict` clips.

    Args:
        cells: logit cells of the rows to fit on; those of id 0 count in the pooled bins only.
        n_bins: number of bins of a value, at least 1.

    Raises:
        NoCellsError: there are no cells.
        BoundsError: `n_bins` is below 1.
    """
    require_cells(cells)
    if n_bins < 1:
        raise BoundsError(f"n_bins is {n_bins}: equal-frequency bins are at least 1; give a whole number from 1 up")
    pooled = replace(pool_values(cells), n_values=cells.n_values)
    parts = [(part, _assign_bins(part, n_bins)) for part in (pooled, cells.select(cells.field_value_id > 0))]
    shape = (cells.n_values, n_bins)
    slot = np.concatenate([part.field_value_id * n_bins + bin_index for part, bin_index in parts])
    weight_VK = add_up(slot, np.concatenate([part.weight for part, _ in parts]), shape)
    response_VK = add_up(slot, np.concatenate([part.response for part, _ in parts]), shape)
    lower_bounds = np.full(cells.n_values * n_bins, np.inf)
    np.minimum.at(lower_bounds, slot, np.concatenate([part.cell for part, _ in parts]) / CELLS_PER_LOGIT)
    rates_VK = np.divide(response_VK, weight_VK, out=np.zeros(shape), where=weight_VK > 0)
    return HistogramPerValue(
        lower_bounds_VK=lower_bounds.reshape(shape),
        bin_rates_VK=np.clip(rates_VK, 0.0, 1.0),
        n_bins_V=np.count_nonzero(weight_VK, axis=1),
    )


def _assign_bins(cells: LogitCells, n_bins: int) -> Ints:
    """The bin of each cell among the non-empty bins of its value, counted from 0."""
    if not len(cells):
        return np.zeros(0, np.int64)
    first = np.append(True, cells.field_value_id[1:] != cells.field_value_id[:-1])
    start_R = np.flatnonzero(first)
    value = np.cumsum(first) - 1
    cumulative = np.cumsum(cells.weight)
    before = (cumulative - cells.weight)[start_R][value]
    scaled_rank = n_bins * (cumulative - before - cells.weight / 2) / np.add.reduceat(cells.weight, start_R)[value]
    with_empty = np.clip((scaled_rank + TIE).astype(np.int64), 0, n_bins - 1)
    n_begun = np.cumsum(first | np.append(True, with_empty[1:] != with_empty[:-1]))
    bin_index: Ints = n_begun - n_begun[start_R][value]
    return bin_index
