"""Forward slope: how far calibrated log-odds shrink, so that they hold on days after those that they were fitted on.

Where the world moves on, effects fitted on past days are too large for the days to come: the calibration slope there
is below 1. It is measured where both are known, on a fit to the earlier days at the later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from adacalib.cells.bin_bounds import require_cells
from adacalib.cells.logistic import fit_logistic, smooth_responses
from adacalib.cells.logit_cells import CELLS_PER_LOGIT, Floats, LogitCells
from adacalib.cells.re_level import fit_intercept

MIN_SLOPE = 0.1
"""Scores keep their order, whatever later days say of them."""
ERRORS_TO_SPARE = 2.0
"""Standard errors by which the measured slope must lie below 1 before anything shrinks."""


@dataclass(frozen=True)
class ForwardSlope:
    """A calibration slope on later days, and what is made of it.

    Attributes:
        slope: what calibrated log-odds are multiplied by, within [MIN_SLOPE, 1]: the value nearest to 1 that is within
            ERRORS_TO_SPARE standard errors of the measured one.
        measured: maximum likelihood; None where the log-odds hardly differ and so have no slope.
        standard_error: of `measured`, labels taken for independent; None where that is.
    """

    slope: float
    measured: float | None
    standard_error: float | None


def fit_forward_slope(cells: LogitCells, logit: Floats) -> ForwardSlope:
    """Calibration slope of log-odds on cells of days that their fit did not see.

    Logistic regression of the label on the log-odds, with Platt's smoothed targets and an intercept of its own: what
    the level did since then (a season, say) is not taken for a slope. The intercept is not used, since the level of the
    days to come is not that of the held-out ones either. Labels of one class say nothing: the error is large then.

    It is measured on the field part, without a network, and applied to what comes out in the end.

    Args:
        cells: cells of the later days.
        logit: calibrated log-odds of each cell.

    Raises:
        NoCellsError: there are no cells.

    Source: Cox, Two further applications of a model for binary regression, 1958; van Houwelingen and Le Cessie,
    Predictive value of statistical models, 1990 (the slope as a factor to shrink by).
    """
    require_cells(cells)
    if np.ptp(logit) < 1 / CELLS_PER_LOGIT:
        return ForwardSlope(1.0, None, None)
    coefficients, level = fit_logistic(logit[:, None], cells.weight, smooth_responses(cells.weight, cells.response))
    measured = float(coefficients[0])
    log_odds = measured * logit + level
    information = cells.weight * expit(log_odds) * expit(-log_odds)
    middle = np.sum(information * logit) / np.sum(information)
    error = float(np.sum(information * (logit - middle) ** 2) ** -0.5)
    return ForwardSlope(float(np.clip(measured + ERRORS_TO_SPARE * error, MIN_SLOPE, 1.0)), measured, error)


def fit_offset(cells: LogitCells, logit: Floats, slope: float) -> float:
    """The log-odds to add to slope·logit so that as many responses are expected as before; 0 for slope 1.

    Args:
        cells: cells of all days of the fit.
        logit: calibrated log-odds of each cell, before they shrink.
        slope: forward slope.

    Raises:
        NoCellsError: there are no cells.
    """
    if slope >= 1:
        return 0.0
    return fit_intercept(replace(cells, response=cells.weight * expit(logit)), slope * logit)
