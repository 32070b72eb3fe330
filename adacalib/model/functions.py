"""Eq. 4 in torch: piecewise-linear functions on log-odds, one per field value.

Shape letters: B samples in the batch, V field values, R curves (as many as field values, or fewer where these share
one), J = K + 1 bounds (padded with +inf; knots with the last knot).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from adacalib.cells.functions import FUNCTION_ARRAYS, BinFunctions


def interpolate(
    bin_bounds_RJ: Tensor,
    knots_RJ: Tensor,
    n_bins_R: Tensor,
    slope_lower_R: Tensor,
    slope_upper_R: Tensor,
    row_B: Tensor,
    logit_B: Tensor,
) -> Tensor:
    """Calibrated log-odds of each sample by the curve in its row; the twin of adacalib.cells.functions.interpolate.

    A logit on a bound belongs to the bin above it; beyond the outer bounds the given slopes go on. Gradients flow to
    the knots and slopes.
    """
    place_B = _find_lower_bound(bin_bounds_RJ, n_bins_R, row_B, logit_B)
    bounds, knots = bin_bounds_RJ.flatten(), knots_RJ.flatten()
    lower_B, upper_B = bounds.gather(0, place_B), bounds.gather(0, place_B + 1)
    lower_knot_B, upper_knot_B = knots.gather(0, place_B), knots.gather(0, place_B + 1)
    inside_B = lower_knot_B + (upper_knot_B - lower_knot_B) / (upper_B - lower_B) * (logit_B - lower_B)
    below_B = lower_knot_B + slope_lower_R[row_B] * (logit_B - lower_B)
    above_B = upper_knot_B + slope_upper_R[row_B] * (logit_B - upper_B)
    return torch.where(logit_B < lower_B, below_B, torch.where(logit_B >= upper_B, above_B, inside_B))


def _find_lower_bound(bin_bounds_RJ: Tensor, n_bins_R: Tensor, row_B: Tensor, logit_B: Tensor) -> Tensor:
    """Place of the lower bound of each sample's bin in the flattened bounds: the last bound not above the logit.

    The first bin where all are above it (or it is NaN), and never beyond the last bin. A search by halves: reading the
    whole row of each sample would cost as many reads as there are bounds.
    """
    n_bounds, bounds = bin_bounds_RJ.shape[1], bin_bounds_RJ.flatten()
    place_B = row_B * n_bounds
    last_B = place_B + n_bins_R[row_B] - 1
    for power in reversed(range((n_bounds - 2).bit_length())):  # n_bounds − 1 bins: places 0 to n_bounds − 2
        ahead_B = torch.minimum(place_B + 2**power, last_B)
        place_B = torch.where(logit_B >= bounds.gather(0, ahead_B), ahead_B, place_B)
    return place_B


class FunctionTable(nn.Module):
    """Curves, and each field value's row and shift (`BinFunctions`), as buffers: a look-up and one interpolation."""

    bin_bounds_RJ: Tensor
    knots_RJ: Tensor
    n_bins_R: Tensor
    slope_lower_R: Tensor
    slope_upper_R: Tensor
    row_V: Tensor
    shift_V: Tensor

    def __init__(self, functions: BinFunctions, *, persistent: bool = True) -> None:
        super().__init__()
        for name in FUNCTION_ARRAYS:
            values = np.ascontiguousarray(getattr(functions, name))
            self.register_buffer(name, torch.from_numpy(values), persistent=persistent)

    @property
    def n_values(self) -> int:
        return len(self.row_V)

    def forward(self, field_value_id_B: Tensor, logit_B: Tensor) -> Tensor:
        """Calibrated log-odds (float64) of un-calibrated log-odds."""
        curve_B = interpolate(
            self.bin_bounds_RJ,
            self.knots_RJ,
            self.n_bins_R,
            self.slope_lower_R,
            self.slope_upper_R,
            self.row_V[field_value_id_B],
            logit_B.double(),
        )
        return torch.add(curve_B, self.shift_V[field_value_id_B])
