"""Bins per field value: equal-frequency bounds on cell edges, and the sums of the cells in each bin.

Shape letters: V field values (row 0 is the global row), K bins (padded), J = K + 1 bounds (padded with +inf),
R field values that have cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.cells.logit_cells import CELLS_PER_LOGIT, Floats, Ints, LogitCells, pool_values

TIE = 1e-9
"""Shares and ranks this close count as equal: sums of weights differ in their last bits from run to run."""


class NoCellsError(ValueError):
    """There is nothing to fit on."""


class BoundsError(ValueError):
    """Bounds that define no bins."""


@dataclass(frozen=True)
class BinBounds:
    """Bounds of the bins of every field value.

    Attributes:
        bin_bounds_VJ: increasing bounds in log-odds; bounds beyond `n_bins_V + 1` are +inf.
        n_bins_V: number of bins after equal bounds were merged (the effective K), at least 1.
    """

    bin_bounds_VJ: Floats
    n_bins_V: Ints

    @property
    def filled_VJ(self) -> Floats:
        """The bounds with the value's last bound in place of the padding, all finite."""
        last_V1 = np.take_along_axis(self.bin_bounds_VJ, self.n_bins_V[:, None], axis=1)
        return np.minimum(self.bin_bounds_VJ, last_V1)


@dataclass(frozen=True)
class BinSums:
    """Sums per field value and bin (the posteriors' raw material); row 0 adds up all cells in the bins of id 0.

    Attributes:
        weight_VK: sum of sample weights; 0 in an empty bin and in the padding.
        response_VK: weighted sum of labels.
        mean_logit_VK: weighted mean logit; the middle of an empty bin, 0 in the padding.
        n_samples_VK: number of rows.
        n_responses_VK: number of rows with label 1.
    """

    weight_VK: Floats
    response_VK: Floats
    mean_logit_VK: Floats
    n_samples_VK: Ints
    n_responses_VK: Ints


def require_cells(cells: LogitCells) -> None:
    """Refuses to go on without cells.

    Raises:
        NoCellsError: `cells` is empty.
    """
    if not len(cells):
        raise NoCellsError(
            "there are 0 logit cells: no sample is left to fit on; look at the row filter, the split and `rejects`"
        )


def find_bin_index(bin_bounds_VJ: Floats, n_bins_V: Ints, field_value_id: Ints, logit: Floats) -> Ints:
    """The bin of each logit: clip(#{k : logit >= b_k} - 1, 0, n_bins - 1), counted from 0.

    A logit on a bound belongs to the bin above it; logits beyond the outer bounds belong to the outer bins.

    Args:
        bin_bounds_VJ: bounds in log-odds, padded with +inf.
        n_bins_V: number of bins of each field value.
        field_value_id: row of each logit, length n.
        logit: log-odds, length n.
    """
    n_bounds_passed = np.zeros(len(logit), np.int64)
    for bound_V in np.ascontiguousarray(bin_bounds_VJ.T):
        n_bounds_passed += logit >= bound_V[field_value_id]
    return np.clip(n_bounds_passed - 1, 0, n_bins_V[field_value_id] - 1)


def find_cell_bins(cells: LogitCells, bounds: BinBounds) -> Ints:
    """The bin of each cell in the bins of its own field value; a cell is never split.

    A cell goes where its mean logit lies. With bounds on cell edges that is where all its samples lie, once the
    mean is held inside the cell (logits are summed in steps of 2^-20, so a mean can round up to the cell's upper
    edge); with other bounds (percentile_approx) it is the best that a cell knows.
    """
    lower = cells.cell / CELLS_PER_LOGIT
    upper = np.nextafter((cells.cell + 1) / CELLS_PER_LOGIT, -np.inf)
    inside = np.clip(cells.logit, lower, upper)
    return find_bin_index(bounds.bin_bounds_VJ, bounds.n_bins_V, cells.field_value_id, inside)


def add_up(slot: Ints, values: Floats, shape: tuple[int, int]) -> Floats:
    """Sums of values per slot of a table, slot = row · number of columns + column."""
    sums = np.bincount(slot, weights=values, minlength=shape[0] * shape[1])
    return np.asarray(sums, np.float64).reshape(shape)


def compute_bin_bounds(cells: LogitCells, n_bins: int, pooled: LogitCells | None = None) -> BinBounds:
    """Equal-frequency bounds of every field value (algorithm.md step 3), all of them cell edges.

    The outer bounds are the outer edges of the value's cells. Inner bound k is the left edge of the cell before
    which the share of the value's weight is nearest to k/K (the lower edge in a tie). Equal bounds merge, so a
    value's number of bins can be smaller than `n_bins`. A value with fewer than `n_bins + 2` cells, and an id
    without cells, takes the bounds of id 0, which are those of all cells pooled.

    Args:
        cells: logit cells of the rows to fit on.
        n_bins: K, at least 1.
        pooled: the cells behind id 0, where `cells` are only some of the field values (on an executor); all of
            `cells` by default.

    Raises:
        NoCellsError: there are no cells.
        BoundsError: `n_bins` is below 1.
    """
    require_cells(cells)
    if n_bins < 1:
        raise BoundsError(f"n_bins is {n_bins}: a function needs at least 1 bin")
    _, global_1J, _ = _equal_frequency_edges(pool_values(cells) if pooled is None else pooled, n_bins)
    edges_VJ = np.repeat(global_1J, cells.n_values, axis=0)
    ids_R, edges_RJ, n_cells_R = _equal_frequency_edges(cells, n_bins)
    own_R = (n_cells_R >= n_bins + 2) & (ids_R > 0)
    edges_VJ[ids_R[own_R]] = edges_RJ[own_R]
    return merge_equal_bounds(edges_VJ)


def _equal_frequency_edges(cells: LogitCells, n_bins: int) -> tuple[Ints, Floats, Ints]:
    """(field value ids, edges per value with repeats, number of cells per value) of the values that have cells."""
    first = np.append(True, cells.field_value_id[1:] != cells.field_value_id[:-1])
    start_R = np.flatnonzero(first)
    n_cells_R = np.diff(np.append(start_R, len(cells)))
    rank_R = np.arange(len(start_R))
    # one increasing axis for all values: value r covers (r, r + 1], so that one search finds every target
    share = cells.weight / np.repeat(np.add.reduceat(cells.weight, start_R), n_cells_R)
    cumulative = np.cumsum(share)
    before_R = cumulative[start_R] - share[start_R]
    position = np.repeat(rank_R, n_cells_R) + np.minimum(cumulative - np.repeat(before_R, n_cells_R), 1.0)

    target = rank_R[:, None] + np.arange(1, n_bins) / n_bins
    reached = np.searchsorted(position, target - TIE)
    below = np.where(reached == start_R[:, None], rank_R[:, None], position[reached - 1])
    inner = reached + (position[reached] - target < target - below - TIE)
    end_R = start_R + n_cells_R
    lower_edge = np.append(cells.cell, 0) / CELLS_PER_LOGIT
    last_R1 = ((cells.cell[end_R - 1] + 1) / CELLS_PER_LOGIT)[:, None]
    inner_edge = np.where(inner < end_R[:, None], lower_edge[inner], last_R1)
    return cells.field_value_id[start_R], np.hstack([lower_edge[start_R][:, None], inner_edge, last_R1]), n_cells_R


def merge_equal_bounds(bounds_VJ: Floats) -> BinBounds:
    """Merges equal neighbours of each row; a row whose bounds are all equal gets one bin of a cell's width.

    Args:
        bounds_VJ: finite bounds in log-odds, never decreasing along a row.

    Raises:
        BoundsError: a row decreases or holds a bound that is not finite.
    """
    bounds_VJ = np.array(bounds_VJ, np.float64)
    if faulty := np.flatnonzero(
        ~np.isfinite(bounds_VJ).all(axis=1) | (np.diff(bounds_VJ, axis=1) < 0).any(axis=1)
    ).tolist():
        raise BoundsError(
            f"the bounds of field value id {faulty[0]} are {bounds_VJ[faulty[0]].tolist()} ({len(faulty)} such ids): "
            "bounds must be finite and never decrease; check the logits that they were computed from"
        )
    flat_V = bounds_VJ[:, 0] == bounds_VJ[:, -1]
    bounds_VJ[flat_V, -1] += 1 / CELLS_PER_LOGIT
    kept_VJ = np.diff(bounds_VJ, axis=1, prepend=-np.inf) > 0
    row, column = np.nonzero(kept_VJ)
    merged_VJ = np.full_like(bounds_VJ, np.inf)
    merged_VJ[row, (np.cumsum(kept_VJ, axis=1) - 1)[row, column]] = bounds_VJ[row, column]
    return BinBounds(merged_VJ, kept_VJ.sum(axis=1) - 1)


def sum_bins(cells: LogitCells, bounds: BinBounds, pooled: LogitCells | None = None) -> BinSums:
    """Adds up the cells of each field value's bins, and all cells in the bins of id 0 (row 0).

    Cells are assigned as in `find_cell_bins`: exact counts where the bounds are cell edges. `pooled` as in
    `compute_bin_bounds`.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    own, pooled = cells.select(cells.field_value_id > 0), pool_values(cells) if pooled is None else pooled
    shape = (cells.n_values, bounds.bin_bounds_VJ.shape[1] - 1)
    slot = np.concatenate([part.field_value_id * shape[1] + find_cell_bins(part, bounds) for part in (pooled, own)])

    def add(name: str) -> Floats:
        return add_up(slot, np.concatenate([getattr(pooled, name), getattr(own, name)]), shape)

    weight_VK = add("weight")
    logit_VK = add_up(slot, np.concatenate([part.weight * part.logit for part in (pooled, own)]), shape)
    filled_VJ = bounds.filled_VJ
    middle_VK = np.where(
        np.arange(shape[1]) < bounds.n_bins_V[:, None], (filled_VJ[:, 1:] + filled_VJ[:, :-1]) / 2, 0.0
    )
    return BinSums(
        weight_VK=weight_VK,
        response_VK=add("response"),
        mean_logit_VK=np.divide(logit_VK, weight_VK, out=middle_VK, where=weight_VK > 0),
        n_samples_VK=np.rint(add("n_samples")).astype(np.int64),
        n_responses_VK=np.rint(add("n_responses")).astype(np.int64),
    )
