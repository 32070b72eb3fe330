"""How often each field value of a world occurs."""

from __future__ import annotations

import numpy as np

from adacalib.worlds.kinds import NEW_ROWS_SHARE, WorldKind, count_new_values
from adacalib.worlds.randomness import Floats


def compute_shares(kind: WorldKind) -> Floats:
    """Share of the rows per field value, summing to 1: Zipf among the old values, and Zipf among the new ones."""
    n_new = count_new_values(kind)
    old = compute_zipf_shares(kind.n_values - n_new, kind.zipf_exponent)
    if not n_new:
        return old
    return np.concatenate([(1 - NEW_ROWS_SHARE) * old, NEW_ROWS_SHARE * compute_zipf_shares(n_new, kind.zipf_exponent)])


def compute_zipf_shares(n: int, exponent: float) -> Floats:
    """Shares of n things, the r-th (from 1) proportional to r^-exponent; they sum to 1."""
    share = np.arange(1, n + 1) ** -float(exponent)
    return np.asarray(share / np.sum(share))
