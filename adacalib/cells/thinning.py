"""Random splits of the rows behind logit cells, without the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adacalib.cells.logit_cells import LogitCells


class SharesError(ValueError):
    """Shares that do not divide a whole."""


def split_cells(cells: LogitCells, shares: Sequence[float], seed: int) -> tuple[LogitCells, ...]:
    """Deals the rows behind the cells to parts at random: part i gets each row with probability shares[i].

    Rows of one cell and one label are exchangeable, so their dealing is a multinomial draw of their number: the
    same law as a split by a hash of the row. Given a part's number of rows in a cell, its number of responses is
    hypergeometric. Numbers of rows and of responses add up to the whole exactly. Weights are divided in proportion
    to the rows, those of responses and of non-responses apart; the mean logit is the whole cell's. A cell without
    a row in a part is left out of it, so a part can be empty.

    Args:
        cells: the cells to split.
        shares: positive, sum to 1.
        seed: of the draw.

    Raises:
        SharesError: a share is not positive, or they do not sum to 1.
    """
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise SharesError(f"shares {list(shares)}: each must be positive and their sum 1, found {sum(shares):g}")
    rng = np.random.default_rng(seed)
    n_others = cells.n_samples - cells.n_responses
    responses = rng.multinomial(cells.n_responses, shares)
    others = rng.multinomial(n_others, shares)
    response_weight = cells.response / np.maximum(cells.n_responses, 1)
    other_weight = (cells.weight - cells.response) / np.maximum(n_others, 1)
    parts = []
    for n_responses, n_non_responses in zip(responses.T, others.T, strict=True):
        response = response_weight * n_responses
        part = replace(
            cells,
            weight=response + other_weight * n_non_responses,
            response=response,
            n_samples=n_responses + n_non_responses,
            n_responses=n_responses,
        )
        parts.append(part.select(part.n_samples > 0))
    return tuple(parts)
