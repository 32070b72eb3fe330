"""Score cells: a method's own scores counted on a fine logit grid, which AUC and reliability are computed from.

They are logit cells of the method's score instead of the un-calibrated one, 512 to a unit of logit instead of 32. The
error that this causes is computed and reported (`auc.AucEstimate.cell_error`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from adacalib.cells.logit_cells import PROBABILITY_LIMIT, Floats, Ints

SCORE_CELLS_PER_LOGIT = 512
"""Score cells per unit of logit."""

_CELL_OFFSET = 1 << 14
_CELLS_PER_KEY = 1 << 15
"""Room for the cells of scores within ±16.12 of logit: 512 · 16.12 = 8253 on either side."""


@dataclass(frozen=True)
class ScoreCells:
    """One method's score cells; all arrays of one length.

    Attributes:
        cell: floor(512 · logit of the score); each at most once.
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


@dataclass(frozen=True)
class KeyedScoreCells:
    """Score cells of many keys (combinations of field value and method), sorted by (key, cell); arrays of one length.

    Attributes:
        key: whose cell it is, ≥ 0.
        cell, weight, response, n_samples, n_responses: as in `ScoreCells`.
    """

    key: Ints
    cell: Ints
    weight: Floats
    response: Floats
    n_samples: Ints
    n_responses: Ints

    def __len__(self) -> int:
        return len(self.cell)

    def select(self, chosen: npt.NDArray[np.bool_]) -> KeyedScoreCells:
        """The cells where chosen holds, in their order."""
        return replace(self, **{name.name: getattr(self, name.name)[chosen] for name in fields(self)})


def assign_score_cell(score: Floats) -> Ints:
    """Number of the score cell: floor(512 · logit), of scores clipped to [1e-7, 1 - 1e-7].

    Args:
        score: probabilities; 0 and 1 are fine.
    """
    clipped = np.clip(score, PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
    cell: Ints = np.floor((np.log(clipped) - np.log1p(-clipped)) * SCORE_CELLS_PER_LOGIT).astype(np.int64)
    return cell


def count_by_key(key: Ints, score: Floats, weight: Floats, label: Ints) -> KeyedScoreCells:
    """Counts samples by (key, score cell).

    Args:
        key: whose sample it is, 0 … 2^48.
        score: probabilities.
        weight: sample weights, > 0.
        label: 0 or 1.
    """
    return _add_up(key, assign_score_cell(score), weight, weight * label, np.ones(len(key), np.int64), label)


def join_keyed(first: KeyedScoreCells, second: KeyedScoreCells) -> KeyedScoreCells:
    """Adds up two counts with the same meaning of the keys."""
    return _add_up(*(np.concatenate([getattr(first, f.name), getattr(second, f.name)]) for f in fields(first)))


def _add_up(
    key: Ints, cell: Ints, weight: Floats, response: Floats, n_samples: Ints, n_responses: Ints
) -> KeyedScoreCells:
    packed = key * _CELLS_PER_KEY + (cell + _CELL_OFFSET)
    order = np.argsort(packed, kind="stable")  # one packed number sorts twice as fast as two
    packed = packed[order]
    starts = np.flatnonzero(np.append(True, packed[1:] != packed[:-1])) if len(packed) else np.zeros(0, np.int64)

    def add(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.add.reduceat(values[order], starts) if len(starts) else values[:0]

    first = packed[starts]
    return KeyedScoreCells(
        key=first // _CELLS_PER_KEY,
        cell=first % _CELLS_PER_KEY - _CELL_OFFSET,
        weight=add(weight).astype(np.float64),
        response=add(response).astype(np.float64),
        n_samples=add(n_samples).astype(np.int64),
        n_responses=add(n_responses).astype(np.int64),
    )
