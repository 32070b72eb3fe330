"""Score cells: a method's own scores counted on a fine logit grid, which AUC and reliability are computed from.

They are logit cells of the method's score instead of the un-calibrated one, on a grid of their own. The error that this
causes is computed and reported (`auc.AucEstimate.cell_error`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints


@dataclass(frozen=True)
class ScoreCells:
    """One method's score cells; all arrays of one length.

    Attributes:
        cell: floor(cells per logit · logit of the score); each at most once.
        weight: sum of sample weights, > 0.
        response: weighted sum of labels.
        score_sum: weighted sum of scores, probabilities.
        n_samples: number of rows.
        n_responses: number of rows with label 1.
    """

    cell: Ints
    weight: Floats
    response: Floats
    score_sum: Floats
    n_samples: Ints
    n_responses: Ints

    def __len__(self) -> int:
        return len(self.cell)


def assign_score_cell(score: Floats, cells_per_logit: int) -> Ints:
    """Number of the score cell: floor(cells_per_logit · logit), of scores clipped to [1e-7, 1 - 1e-7].

    Args:
        score: probabilities; 0 and 1 are fine.
        cells_per_logit: score cells per unit of logit; the more, the fewer scores count as tied that are not.
    """
    clipped = np.clip(score, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
    cell: Ints = np.floor(np.log(clipped / (1 - clipped)) * cells_per_logit).astype(np.int64)
    return cell


def count_score_cells(cells_per_logit: int) -> int:
    """Number of cells that scores may fall into, as many below logit 0 as from there on."""
    limit = math.log((1 - PROBABILITY_LIMIT) / PROBABILITY_LIMIT)
    return 2 * (math.floor(limit * cells_per_logit) + 1)
