"""BBQ, Bayesian binning into quantiles: an average over equal-frequency binnings (Naeini, Cooper, Hauskrecht 2015).

Shape letters: M binnings, K bins of a binning, C cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, expit, softmax

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.global_curve import find_equal_frequency_bins
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, PROBABILITY_LIMIT, Floats, Ints, LogitCells, pool_values

PRIOR_SAMPLES = 2.0
"""N'/K, samples' worth of belief that a bin's rate is the middle of its scores. The paper's N' is that of a binning;
the authors' own code has N' = 2K, "the version used in the paper". Others read N' = 2, which fits slightly worse."""

RANGE_CONSTANT = 10.0
"""C: numbers of bins are tried from N^(1/3)/C to C·N^(1/3)."""

_MIN_SAMPLES_PER_BIN = 5


@dataclass(frozen=True)
class BayesianBinning:
    """The averaged rate, one per cell of the fit: all binnings are constant within a cell.

    Attributes:
        inner_bounds: left edges of all cells but the first in log-odds, increasing; a logit on a bound belongs to the
            cell above it, and one between two cells to the cell below.
        rates_C: averaged rate of each cell, within (0, 1).
        n_bins_M: number of bins of each binning that was tried.
        binning_weight_M: posterior probability of each binning; sums to 1.
    """

    inner_bounds: Floats
    rates_C: Floats
    n_bins_M: Ints
    binning_weight_M: Floats

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """The averaged rate, within [1e-7, 1 - 1e-7]; the field value plays no part; see `Baseline`.

        Logits beyond all cells of the fit get the rate of the outer cell.
        """
        rate = self.rates_C[np.searchsorted(self.inner_bounds, logit, side="right")]
        return np.clip(rate, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)


def fit_bbq(cells: LogitCells) -> BayesianBinning:
    """Averages the binnings of the pooled cells by their marginal likelihood, all equally probable before.

    A binning of K bins has rates with independent priors Beta(α_k, β_k), α_k = 2p_k and β_k = 2(1 − p_k), p_k the
    middle of the bin's scores (the outer bins reach to 0 and 1); 2 is `PRIOR_SAMPLES`. With n_k samples and m_k
    responses its marginal likelihood is Π_k B(m_k + α_k, n_k − m_k + β_k) / B(α_k, β_k), and the rate of a bin its
    posterior mean (m_k + α_k) / (n_k + 2). With N the weight of all samples, K runs from ⌊N^(1/3)/C⌋ to ⌈C·N^(1/3)⌉,
    but from 1 at least and to ⌈N/5⌉ at most (five samples a bin). All binnings count, as in the paper; the authors'
    code keeps the best few.

    On logit cells a cell is never split: it goes whole to a bin (`find_equal_frequency_bins`). So scores of one cell
    share their rates, K counts the bins that are not empty, and where two numbers of bins lead to the same bins, these
    count once: all numbers of bins far above the number of cells do.

    Labels of one class: the rate is the prior's share away from 0 or 1.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    pooled = pool_values(cells)
    packed = _list_binnings(pooled)
    fitted = [_fit_binning(pooled, _unpack(binning, len(pooled))) for binning in packed]
    weight_M = softmax(np.array([log_likelihood for log_likelihood, _ in fitted]))
    rates_C = np.zeros(len(pooled))
    for (_, rate_K), weight, binning in zip(fitted, weight_M, packed, strict=True):
        starts = _unpack(binning, len(pooled))
        rates_C += weight * np.repeat(rate_K, np.diff(np.append(starts, len(pooled))))
    return BayesianBinning(
        inner_bounds=pooled.cell[1:] / CELLS_PER_LOGIT,
        rates_C=rates_C,
        n_bins_M=np.array([len(rate_K) for _, rate_K in fitted]),
        binning_weight_M=weight_M,
    )


def find_n_bins_range(n_samples: float) -> range:
    """The numbers of bins that are tried.

    Args:
        n_samples: N, weight of all samples, > 0.
    """
    root = float(np.cbrt(n_samples))
    most = min(np.ceil(n_samples / _MIN_SAMPLES_PER_BIN), np.ceil(RANGE_CONSTANT * root))
    return range(max(1, int(root / RANGE_CONSTANT)), int(most) + 1)


def _list_binnings(pooled: LogitCells) -> list[bytes]:
    """The different binnings, a bit per cell that says whether a bin begins there: large N has thousands of them."""
    begins_C = np.zeros(len(pooled), bool)
    binnings: dict[bytes, None] = {}  # a set that keeps its order
    for n_bins in find_n_bins_range(float(pooled.weight.sum())):
        begins_C[:] = False
        begins_C[find_equal_frequency_bins(pooled, n_bins)] = True
        binnings[np.packbits(begins_C).tobytes()] = None
    return list(binnings)


def _unpack(binning: bytes, n_cells: int) -> Ints:
    return np.flatnonzero(np.unpackbits(np.frombuffer(binning, np.uint8), count=n_cells))


def _fit_binning(pooled: LogitCells, starts: Ints) -> tuple[float, Floats]:
    """(logarithm of the marginal likelihood, posterior mean rate of each bin)."""
    weight_K = np.add.reduceat(pooled.weight, starts)
    response_K = np.clip(np.add.reduceat(pooled.response, starts), 0.0, weight_K)
    bounds = np.concatenate([[0.0], expit(pooled.cell[starts[1:]] / CELLS_PER_LOGIT), [1.0]])
    middle_K = (bounds[1:] + bounds[:-1]) / 2
    alpha_K, beta_K = PRIOR_SAMPLES * middle_K, PRIOR_SAMPLES * (1 - middle_K)
    log_likelihood = betaln(response_K + alpha_K, weight_K - response_K + beta_K) - betaln(alpha_K, beta_K)
    return float(log_likelihood.sum()), (response_K + alpha_K) / (weight_K + PRIOR_SAMPLES)
