"""What is fitted on the calibrator's own scores: re-level (algorithm.md, step 6), and what keeps the mean.

Rows are streamed once; each rank adds up the logit cells of its scores, rank 0 joins the ranks' cells and fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch

from adacalib.cells.forward_slope import fit_offset
from adacalib.cells.logit_cells import Floats, LogitCells, count_rows, join_cells
from adacalib.cells.re_level import fit_intercept, fit_re_level
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks, broadcast_arrays, gather_json
from adacalib.model.row_files import RowFiles
from adacalib.model.training import Columns, TrainingPlan, stream_columns

_MERGE_AT = 2_000_000
"""Cells that a rank holds before it adds equal ones up."""


@dataclass(frozen=True)
class Levelling:
    """What is to be fitted on the scores.

    Attributes:
        level_V: a_z of step 2, log-odds.
        shifts: "values" fits the level of each field value, "all" one intercept for all of them (the global curve was
            chosen), "nothing" leaves them where they are.
        slope: forward slope.
    """

    level_V: Floats
    shifts: Literal["values", "all", "nothing"]
    slope: float = 1.0

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be fitted, so that rows must be read."""
        return self.shifts != "nothing" or self.slope < 1

    def fit(self, cells: LogitCells) -> dict[str, Floats]:
        """level_shift (V,) and offset (1,), both log-odds, as `Calibrator` takes them.

        Args:
            cells: cells of the scores before any shift; their `logit` is the calibrated log-odds less a_z.

        Raises:
            NoCellsError: there are no cells.
        """
        shift_V = self._fit_shift(cells)
        shifted = cells.logit + (self.level_V + shift_V)[cells.field_value_id]
        return {"level_shift": shift_V, "offset": np.array([fit_offset(cells, shifted, self.slope)])}

    def _fit_shift(self, cells: LogitCells) -> Floats:
        if self.shifts == "values":
            return fit_re_level(cells, self.level_V)
        alike = self.shifts == "all"
        shift = fit_intercept(cells, cells.logit + self.level_V[cells.field_value_id]) if alike else 0.0
        return np.full(len(self.level_V), shift)


def fit_on_scores(
    calibrator: Calibrator, rows: Iterable[RowFiles], levelling: Levelling, plan: TrainingPlan, ranks: Ranks
) -> dict[str, Floats]:
    """`Levelling.fit` on the scores of rows; called on every rank, the same result on each.

    Args:
        calibrator: with level shift 0 and slope 1.
        rows: all rows of train ∪ dev.
        levelling: what to fit.
        plan: names columns, seed and reader.
    """
    level_V = levelling.level_V
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
    return dict(broadcast_arrays(ranks, None if joined is None else levelling.fit(joined)))


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
