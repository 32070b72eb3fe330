"""Does the global level drift over time? Global calibrations of dated data, side by side (algorithm.md, step 8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import expit

from adacalib.cells.global_curve import fit_global_curve
from adacalib.cells.logit_cells import LogitCells
from adacalib.cells.robust import compute_log_loss


def compare_levels(test_cells: LogitCells, fit_cells: Mapping[str, LogitCells | None]) -> dict[str, dict[str, float]]:
    """LogLoss and PCOC on the test split of the global curve fitted on each set of cells.

    Args:
        test_cells: logit cells of the test split.
        fit_cells: name → cells to fit on; None leaves the scores as they are.
    """
    compared = {}
    for name, cells in fit_cells.items():
        logit = test_cells.logit if cells is None else fit_global_curve(cells).evaluate(test_cells.logit)
        expected, observed = np.sum(test_cells.weight * expit(logit)), np.sum(test_cells.response)
        compared[name] = {"log_loss": compute_log_loss(test_cells, logit)}
        if observed > 0:
            compared[name]["pcoc"] = float(expected / observed)
    return compared
