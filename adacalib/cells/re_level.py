"""Re-level: the level of every field value once more, after the auxiliary network (algorithm.md step 6)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logit_cells import Floats, LogitCells
from adacalib.cells.value_effects import fit_value_effects

TAU_FACTOR = 1.4
"""The final levels are shrunk less than empirical Bayes says: what the network left over is level first of all."""


def fit_re_level(cells: LogitCells, level_V: Floats) -> Floats:
    """Level shift of every field value: α + a′_z - a_z, for ids without cells with the mean of a′.

    First a global intercept α, then levels a′ by empirical Bayes, finally with 1.4 times their τ.

    Args:
        cells: cells of the scores before the shift; their `logit` is the calibrated log-odds (auxiliary network
            included) minus a_z.
        level_V: a_z, the levels of step 2, log-odds; for id 0 what its function holds.

    Raises:
        NoCellsError: there are no cells.
    """
    intercept = fit_intercept(cells, cells.logit)
    base_logit = cells.logit + intercept
    estimated = fit_value_effects(cells, base_logit, slope=False)
    tau = (TAU_FACTOR * estimated.tau_level, 1.0)
    final = fit_value_effects(cells, base_logit, slope=False, tau=tau)
    return intercept + final.level_V - level_V


def fit_intercept(cells: LogitCells, logit: Floats) -> float:
    """The α for which the expected responses Σ n·σ(logit + α) equal the observed ones.

    Labels of one class only are taken as half a response, or half a non-response, short of it: α stays finite.

    Args:
        cells: logit cells.
        logit: log-odds of each cell.

    Raises:
        NoCellsError: there are no cells.
    """
    require_cells(cells)
    total = float(cells.weight.sum())
    least = 0.5 * total / (total + 1)
    observed = float(np.clip(cells.response.sum(), least, total - least))
    reach = float(np.abs(logit).max() + np.log(2 * total + 2)) + 1.0

    def surplus(intercept: float) -> float:
        return float(np.sum(cells.weight * expit(logit + intercept))) - observed

    return float(brentq(surplus, -reach, reach, xtol=1e-12))
