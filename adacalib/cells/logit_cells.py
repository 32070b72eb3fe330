"""Logit cells in memory: what every step that needs no rows is computed from.

A logit cell is the slice [j/32, (j+1)/32) of one field value's un-calibrated logit. All its samples get nearly the
same result, so sums per cell stand for the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_Number = TypeVar("_Number", np.float64, np.int64)

CELLS_PER_LOGIT = 32
"""Cells per unit of logit."""

PROBABILITY_LIMIT = 1e-7
"""Scores are clipped to [1e-7, 1 - 1e-7] before anything else."""

LOGIT_LIMIT = 16.118095550958316
"""Logit of 1 - PROBABILITY_LIMIT."""


@dataclass(frozen=True)
class LogitCells:
    """Cells of one field, sorted by (field value id, cell); all arrays of length n_cells.

    Attributes:
        field_value_id: dense id, 1 … n_values - 1 (0, unseen, has no cells in training).
        cell: floor(32 · logit).
        weight: sum of sample weights (the number of samples where there are no weights), > 0.
        response: weighted sum of labels, in [0, weight].
        logit: weighted mean un-calibrated logit of the cell, in log-odds.
        n_samples: number of rows.
        n_responses: number of rows with label 1.
        n_values: number of dense ids, id 0 included; arrays indexed by id have this length.
    """

    field_value_id: Ints
    cell: Ints
    weight: Floats
    response: Floats
    logit: Floats
    n_samples: Ints
    n_responses: Ints
    n_values: int

    def __len__(self) -> int:
        return len(self.cell)

    def select(self, mask: npt.NDArray[np.bool_]) -> LogitCells:
        """The cells where mask holds; ids keep their meaning."""
        return replace(
            self,
            **{
                name: getattr(self, name)[mask]
                for name in ("field_value_id", "cell", "weight", "response", "logit", "n_samples", "n_responses")
            },
        )

    def sum_by_value(self, values: Floats) -> Floats:
        """Sums an array of length n_cells per field value id; length n_values."""
        return np.asarray(np.bincount(self.field_value_id, weights=values, minlength=self.n_values), np.float64)


def merge_cells(
    field_value_id: Ints,
    cell: Ints,
    weight: Floats,
    response: Floats,
    weighted_logit: Floats,
    n_samples: Ints,
    n_responses: Ints,
    n_values: int,
) -> LogitCells:
    """Sorts rows by (field value id, cell) and adds up those that share both (days of one cell).

    Args:
        weighted_logit: per row the weighted sum of logits (not the mean).
        n_values: number of dense ids, id 0 included.
    """
    order = np.lexsort((cell, field_value_id))
    field_value_id, cell = field_value_id[order], cell[order]
    first = np.ones(len(cell), bool)
    first[1:] = (field_value_id[1:] != field_value_id[:-1]) | (cell[1:] != cell[:-1])
    starts = np.flatnonzero(first)
    total_weight = _add(weight[order], starts)
    return LogitCells(
        field_value_id=field_value_id[starts],
        cell=cell[starts],
        weight=total_weight,
        response=_add(response[order], starts),
        logit=_add(weighted_logit[order], starts) / total_weight,
        n_samples=_add(n_samples[order], starts),
        n_responses=_add(n_responses[order], starts),
        n_values=n_values,
    )


def count_rows(field_value_id: Ints, logit: Floats, label: Floats, weight: Floats, n_values: int) -> LogitCells:
    """The cells of rows.

    Args:
        field_value_id: dense ids.
        logit: log-odds, finite.
        label: 0 or 1.
        weight: > 0.
        n_values: number of dense ids, id 0 included.
    """
    return merge_cells(
        field_value_id=field_value_id,
        cell=np.floor(logit * CELLS_PER_LOGIT).astype(np.int64),
        weight=weight,
        response=weight * label,
        weighted_logit=weight * logit,
        n_samples=np.ones(len(label), np.int64),
        n_responses=label.astype(np.int64),
        n_values=n_values,
    )


def _add(values: npt.NDArray[_Number], starts: Ints) -> npt.NDArray[_Number]:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def compute_mean_label(response: float, weight: float) -> float:
    """Σy/Σw, kept half a response away from 0 and 1, so that its log-odds are finite.

    Args:
        response: weighted sum of labels.
        weight: sum of weights, > 0.
    """
    return float(np.clip(response / weight, 0.5 / (weight + 1), (weight + 0.5) / (weight + 1)))


def pool_values(cells: LogitCells) -> LogitCells:
    """All field values as one: the cells of id 0, the global row."""
    return merge_cells(
        np.zeros(len(cells), np.int64),
        cells.cell,
        cells.weight,
        cells.response,
        cells.weight * cells.logit,
        cells.n_samples,
        cells.n_responses,
        n_values=1,
    )


def join_cells(parts: Sequence[LogitCells]) -> LogitCells:
    """Adds up cells of several parts (days, ranks) with the same ids; at least one part."""
    return merge_cells(
        field_value_id=np.concatenate([part.field_value_id for part in parts]),
        cell=np.concatenate([part.cell for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
        response=np.concatenate([part.response for part in parts]),
        weighted_logit=np.concatenate([part.weight * part.logit for part in parts]),
        n_samples=np.concatenate([part.n_samples for part in parts]),
        n_responses=np.concatenate([part.n_responses for part in parts]),
        n_values=parts[0].n_values,
    )


def cells_from_columns(columns: Mapping[str, npt.NDArray[np.generic]], n_values: int) -> LogitCells:
    """Cells from the columns of the logit_cells table (one field's rows, any dates; they are added up).

    Args:
        columns: field_value_id, cell, n_samples, n_responses, sum_weight, sum_weight_responses, sum_weight_logit.
        n_values: number of dense ids, id 0 included.
    """
    return merge_cells(
        field_value_id=columns["field_value_id"].astype(np.int64),
        cell=columns["cell"].astype(np.int64),
        weight=columns["sum_weight"].astype(np.float64),
        response=columns["sum_weight_responses"].astype(np.float64),
        weighted_logit=columns["sum_weight_logit"].astype(np.float64),
        n_samples=columns["n_samples"].astype(np.int64),
        n_responses=columns["n_responses"].astype(np.int64),
        n_values=n_values,
    )
