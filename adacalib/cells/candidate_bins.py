"""The bin_statistics table as arrays.

Shape letters: V field values (row 0 is the global row), C candidate numbers of bins, K bins (padded to the largest
candidate), J = K + 1 bounds (padded with +inf).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.logit_cells import Floats, Ints, compute_mean_label


@dataclass(frozen=True)
class CandidateBins:
    """Bounds and posteriors of every field value and candidate.

    Attributes:
        candidates: the numbers of bins asked for, C of them.
        bin_bounds_VCJ: log-odds, padded with +inf.
        n_bins_VC: bins in effect.
        weight_VCK: sum of weights; 0 in an empty bin and in the padding.
        response_VCK: weighted sum of labels.
        mean_logit_VCK: weighted mean logit; the middle of an empty bin, 0 in the padding.
        is_unseen_V: served as unseen, with what the global row holds: that row itself, and values without samples.
    """

    candidates: tuple[int, ...]
    bin_bounds_VCJ: Floats
    n_bins_VC: Ints
    weight_VCK: Floats
    response_VCK: Floats
    mean_logit_VCK: Floats
    is_unseen_V: npt.NDArray[np.bool_]

    def bounds_of(self, candidate: int) -> BinBounds:
        """Bounds of one candidate, by its place among the candidates; as wide as that candidate needs."""
        width = self.candidates[candidate] + 1
        return BinBounds(self.bin_bounds_VCJ[:, candidate, :width], self.n_bins_VC[:, candidate])


def arrange_bins(
    columns: Mapping[str, npt.NDArray[Any]], n_values: int, *, may_be_unseen: bool = False
) -> CandidateBins:
    """Arranges the rows of the bin_statistics table.

    Args:
        columns: field_value_id, n_bins_candidate, n_bins, bin_index, lower_bound, upper_bound, sum_weight,
            sum_weight_responses, mean_logit (NaN in an empty bin).
        n_values: number of dense ids, id 0 included.
        may_be_unseen: a field value without bins is served as unseen (values of train, where the fit is on dev alone).

    Raises:
        ValueError: there are no rows, or a field value has no bins and may not be unseen: the table belongs to other
            field values.
    """
    candidates = np.unique(columns["n_bins_candidate"])
    if not len(candidates):
        raise ValueError("bin_statistics: no rows of the calibrated field; run from compute_bin_statistics again")
    value, index = columns["field_value_id"], columns["bin_index"]
    place = np.searchsorted(candidates, columns["n_bins_candidate"])
    shape = (n_values, len(candidates), int(candidates[-1]))
    n_bins = np.zeros(shape[:2], np.int64)
    bounds = np.full((*shape[:2], shape[2] + 1), np.inf)
    weight, response, mean_logit = (np.zeros(shape) for _ in range(3))
    n_bins[value, place] = columns["n_bins"]
    lacks = n_bins == 0
    is_unseen = lacks.all(axis=1) & may_be_unseen
    is_unseen[0] = False
    if missing := int(np.sum(lacks & ~is_unseen[:, None])):
        raise ValueError(
            f"bin_statistics: {missing} of {n_bins.size} (field value, candidate) pairs have no bins; "
            "field_values is newer than bin_statistics: run from prepare_samples again"
        )
    bounds[value, place, index] = columns["lower_bound"]
    last = index == columns["n_bins"] - 1
    bounds[value[last], place[last], index[last] + 1] = columns["upper_bound"][last]
    weight[value, place, index] = columns["sum_weight"]
    response[value, place, index] = columns["sum_weight_responses"]
    middle = (columns["lower_bound"] + columns["upper_bound"]) / 2
    mean_logit[value, place, index] = np.where(np.isnan(columns["mean_logit"]), middle, columns["mean_logit"])
    is_unseen[0] = True
    for own in (bounds, n_bins, weight, response, mean_logit):
        own[is_unseen] = own[0]
    return CandidateBins(tuple(int(k) for k in candidates), bounds, n_bins, weight, response, mean_logit, is_unseen)


def compute_posterior_logit(bins: CandidateBins) -> Floats:
    """Log-odds of each bin's rate (Σy + .5·ȳ)/(n + .5), V × C × K: finite without responses, and with nothing else."""
    mean = compute_mean_label(bins.response_VCK[0, 0].sum(), bins.weight_VCK[0, 0].sum())
    rate_VCK = (bins.response_VCK + 0.5 * mean) / (bins.weight_VCK + 0.5)
    return np.asarray(np.log(rate_VCK) - np.log1p(-rate_VCK))


def compute_posterior_statistics(bins: CandidateBins) -> Floats:
    """(logit of the response rate, log1p of the responses) per bin, standardised over filled bins: V × C × K × 2.

    The rate is that of `compute_posterior_logit`; an empty bin has the mean rate.
    """
    statistics = np.stack([compute_posterior_logit(bins), np.log1p(bins.response_VCK)], axis=-1)
    filled = bins.weight_VCK > 0
    center, spread = statistics[filled].mean(axis=0), statistics[filled].std(axis=0)
    return np.asarray((statistics - center) / np.where(spread > 1e-9, spread, 1.0))
