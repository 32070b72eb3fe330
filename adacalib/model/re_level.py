"""Re-level: the level of every field value once more, after the auxiliary network (algorithm.md, step 6).

Rows are streamed once; each rank adds up the logit cells of its scores, rank 0 joins the ranks' cells and fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from adacalib.cells.logit_cells import Floats, LogitCells, count_rows, join_cells
from adacalib.cells.re_level import fit_intercept, fit_re_level
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks, broadcast_arrays, gather_json
from adacalib.model.row_files import RowFiles
from adacalib.model.training import Columns, TrainingPlan, stream_columns

_MERGE_AT = 2_000_000
"""Cells that a rank holds before it adds equal ones up."""


def compute_level_shift(
    calibrator: Calibrator,
    rows: Iterable[RowFiles],
    level_V: Floats,
    plan: TrainingPlan,
    ranks: Ranks,
    per_value: bool,
) -> Floats:
    """Level shift of every field value; called on every rank, the same result on each.

    Args:
        calibrator: with level shift 0.
        rows: all rows of train ∪ dev.
        level_V: a_z of step 2, log-odds.
        plan: names columns, seed and reader.
        per_value: False shifts all field values by one intercept (the global curve was chosen).
    """
    cells = _Accumulator(len(level_V))
    calibrator.to(ranks.device).eval()
    for files in rows:
        for columns in stream_columns(files, plan, ranks):
            ids_B = columns["field_value_id"].long()
            with torch.no_grad():
                logit_B = calibrator.compute_unshifted(ids_B, columns["uncalibrated_logit"], columns)
            cells.add(columns, logit_B.cpu().numpy() - level_V[ids_B.cpu().numpy()])
    calibrator.cpu()
    joined = cells.join_ranks(ranks)
    shift = None if joined is None else {"level_shift": fit_level_shift(joined, level_V, per_value)}
    return broadcast_arrays(ranks, shift)["level_shift"]


def fit_level_shift(cells: LogitCells, level_V: Floats, per_value: bool) -> Floats:
    """Level shift of every field value from cells of the scores before it, less a_z; one for all unless per_value."""
    if per_value:
        return fit_re_level(cells, level_V)
    return np.full(len(level_V), fit_intercept(cells, cells.logit + level_V[cells.field_value_id]))


class _Accumulator:
    """Logit cells of scores, added up batch by batch."""

    def __init__(self, n_values: int) -> None:
        self.n_values = n_values
        self.parts: list[LogitCells] = []

    def add(self, columns: Columns, logit: Floats) -> None:
        label, weight = (columns[name].cpu().numpy().astype(np.float64) for name in ("label", "weight"))
        ids = columns["field_value_id"].cpu().numpy().astype(np.int64)
        self.parts.append(count_rows(ids, logit, label, weight, self.n_values))
        if sum(map(len, self.parts)) > _MERGE_AT:
            self.parts = [join_cells(self.parts)]

    def join_ranks(self, ranks: Ranks) -> LogitCells | None:
        """The cells of all ranks, on rank 0."""
        own = join_cells(self.parts) if self.parts else None
        names = [field.name for field in fields(LogitCells) if field.name != "n_values"]
        gathered = gather_json(ranks, {name: getattr(own, name).tolist() if own else [] for name in names})
        if not ranks.is_first:
            return None
        parts = []
        for lists in gathered:
            arrays: dict[str, Any] = {
                name: np.array(lists[name], np.float64 if name in ("weight", "response", "logit") else np.int64)
                for name in names
            }
            parts.append(LogitCells(**arrays, n_values=self.n_values))
        return join_cells(parts)
