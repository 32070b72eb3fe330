"""One monotone piecewise-linear function per field value, on log-odds (Eq. 4).

Shape letters: V field values (id 0 stands for unseen values), R curves (as many as field values, or fewer where these
share one), J = K + 1 bounds (padded), S = J + 1 lines (padded).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from adacalib.cells.bin_bounds import BinBounds, find_bin_index
from adacalib.cells.logit_cells import Floats, Ints

EDGE_SLOPE_LIMITS = (0.02, 4.0)
"""Slopes allowed beyond the outer bounds."""


class FieldValueIdError(ValueError):
    """A dense id that the functions do not know."""


@dataclass(frozen=True)
class BinFunctions:
    """Piecewise-linear functions, one per dense field value id: a curve, which others may share, raised by a shift.

    Id 0 serves unseen values.

    Attributes:
        bin_bounds_RJ: increasing bounds in log-odds, padded with +inf.
        knots_RJ: log-odds of the curve at the bounds, padded with the last knot.
        n_bins_R: number of bins of each curve, at least 1.
        slope_lower_R: slope below the first bound.
        slope_upper_R: slope above the last bound.
        row_V: the curve of each field value.
        shift_V: log-odds added to the curve.
    """

    bin_bounds_RJ: Floats
    knots_RJ: Floats
    n_bins_R: Ints
    slope_lower_R: Floats
    slope_upper_R: Floats
    row_V: Ints
    shift_V: Floats

    @property
    def n_values(self) -> int:
        return len(self.row_V)


FUNCTION_ARRAYS = tuple(field.name for field in fields(BinFunctions))
"""Names of the arrays of `BinFunctions`."""


def build_functions(bounds: BinBounds, knots_VJ: Floats) -> BinFunctions:
    """A curve of its own through each field value's knots; beyond the ends the edge bins' slopes go on, within
    EDGE_SLOPE_LIMITS.

    Args:
        bounds: bounds of each field value.
        knots_VJ: calibrated log-odds at the bounds; what stands in the padding is replaced by the last knot.
    """
    row_V, last_V = np.arange(len(knots_VJ)), bounds.n_bins_V
    padded_VJ = np.arange(knots_VJ.shape[1]) > last_V[:, None]
    knots_VJ = np.where(padded_VJ, knots_VJ[row_V, last_V][:, None], knots_VJ)
    bounds_VJ = bounds.bin_bounds_VJ
    lower_V = (knots_VJ[:, 1] - knots_VJ[:, 0]) / (bounds_VJ[:, 1] - bounds_VJ[:, 0])
    upper_V = (knots_VJ[row_V, last_V] - knots_VJ[row_V, last_V - 1]) / (
        bounds_VJ[row_V, last_V] - bounds_VJ[row_V, last_V - 1]
    )
    return BinFunctions(
        bin_bounds_RJ=bounds_VJ,
        knots_RJ=knots_VJ,
        n_bins_R=last_V,
        slope_lower_R=np.clip(lower_V, *EDGE_SLOPE_LIMITS),
        slope_upper_R=np.clip(upper_V, *EDGE_SLOPE_LIMITS),
        row_V=row_V,
        shift_V=np.zeros(len(row_V)),
    )


@dataclass(frozen=True)
class Segments:
    """The same functions as straight lines: calibrated = intercept + slope · logit, S = J + 1 lines per field value.

    Attributes:
        bound_VJ: where a line ends and the next begins (which has the bound itself), increasing, padded with +inf.
        intercept_VS: log-odds at logit 0.
        slope_VS: log-odds per unit of logit.
    """

    bound_VJ: Floats
    intercept_VS: Floats
    slope_VS: Floats


def list_segments(functions: BinFunctions) -> Segments:
    """The lines of every field value: below the first bound, one per bin, above the last bound.

    Line number s holds where s bounds are at or below the logit. The rest of a row, where a value has fewer bins than
    the widest, is padded with its last line.
    """
    bounds_RJ, knots_RJ = functions.bin_bounds_RJ, functions.knots_RJ
    n_curves, n_bounds = bounds_RJ.shape
    last_R1 = functions.n_bins_R[:, None]
    filled_RJ = np.minimum(bounds_RJ, np.take_along_axis(bounds_RJ, last_R1, axis=1))
    inside_RK = np.arange(n_bounds - 1) < last_R1
    rise_RK = np.divide(np.diff(knots_RJ), np.diff(filled_RJ), out=np.zeros((n_curves, n_bounds - 1)), where=inside_RK)
    inner_RK = np.where(inside_RK, rise_RK, functions.slope_upper_R[:, None])
    slope_RS = np.column_stack([functions.slope_lower_R, inner_RK, functions.slope_upper_R])
    # each line goes through the knot at its lower bound, the first one through that at its upper
    first_RS = np.column_stack([filled_RJ[:, 0], filled_RJ]), np.column_stack([knots_RJ[:, 0], knots_RJ])
    intercept_RS = first_RS[1] - slope_RS * first_RS[0]
    row_V, shift_V = functions.row_V, functions.shift_V
    return Segments(bounds_RJ[row_V], intercept_RS[row_V] + shift_V[:, None], slope_RS[row_V])


def interpolate(functions: BinFunctions, field_value_id: Ints, logit: Floats) -> Floats:
    """Calibrated log-odds of each sample (or cell): Eq. 4 without the auxiliary term.

    Continuous everywhere: inside a bin linear between its knots, beyond the outer bounds linear with the edge
    slopes. The logit is never clamped.

    Args:
        functions: the functions.
        field_value_id: dense ids, length n; 0 for unseen values.
        logit: un-calibrated log-odds, length n.

    Raises:
        FieldValueIdError: an id below 0 or beyond the last one.
    """
    n_values = functions.n_values
    if len(field_value_id) and not 0 <= field_value_id.min() <= field_value_id.max() < n_values:
        raise FieldValueIdError(
            f"field value ids from {field_value_id.min()} to {field_value_id.max()}, but the functions know 0 to "
            f"{n_values - 1}: give unseen values the id 0, and use the ids that the functions were fitted with"
        )
    row = functions.row_V[field_value_id]
    bin_index = find_bin_index(functions.bin_bounds_RJ, functions.n_bins_R, row, logit)
    lower_bound, upper_bound = functions.bin_bounds_RJ[row, bin_index], functions.bin_bounds_RJ[row, bin_index + 1]
    lower_knot, upper_knot = functions.knots_RJ[row, bin_index], functions.knots_RJ[row, bin_index + 1]
    inside = lower_knot + (upper_knot - lower_knot) / (upper_bound - lower_bound) * (logit - lower_bound)
    below = lower_knot + functions.slope_lower_R[row] * (logit - lower_bound)
    above = upper_knot + functions.slope_upper_R[row] * (logit - upper_bound)
    curve = np.where(logit < lower_bound, below, np.where(logit >= upper_bound, above, inside))
    return np.asarray(curve + functions.shift_V[field_value_id])
