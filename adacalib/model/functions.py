"""Eq. 4 in torch: piecewise-linear functions on log-odds, one per field value.

Shape letters: B samples in the batch, V field values, J = K + 1 bounds (padded with +inf; knots with the last knot).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adacalib.cells.functions import BinFunctions
from adacalib.cells.logit_cells import Floats


def interpolate(
    bin_bounds_VJ: Tensor,
    knots_VJ: Tensor,
    n_bins_V: Tensor,
    slope_lower_V: Tensor,
    slope_upper_V: Tensor,
    row_B: Tensor,
    logit_B: Tensor,
) -> Tensor:
    """Calibrated log-odds of each sample by the function in its row; the twin of adacalib.cells.functions.interpolate.

    A logit on a bound belongs to the bin above it; beyond the outer bounds the given slopes go on. Gradients flow to
    the knots and slopes.
    """
    place_B = _find_lower_bound(bin_bounds_VJ, n_bins_V, row_B, logit_B)
    bounds, knots = bin_bounds_VJ.flatten(), knots_VJ.flatten()
    lower_B, upper_B = bounds.gather(0, place_B), bounds.gather(0, place_B + 1)
    lower_knot_B, upper_knot_B = knots.gather(0, place_B), knots.gather(0, place_B + 1)
    inside_B = lower_knot_B + (upper_knot_B - lower_knot_B) / (upper_B - lower_B) * (logit_B - lower_B)
    below_B = lower_knot_B + slope_lower_V[row_B] * (logit_B - lower_B)
    above_B = upper_knot_B + slope_upper_V[row_B] * (logit_B - upper_B)
    return torch.where(logit_B < lower_B, below_B, torch.where(logit_B >= upper_B, above_B, inside_B))


def _find_lower_bound(bin_bounds_VJ: Tensor, n_bins_V: Tensor, row_B: Tensor, logit_B: Tensor) -> Tensor:
    """Place of the lower bound of each sample's bin in the flattened bounds: the last bound not above the logit.

    The first bin where all are above it (or it is NaN), and never beyond the last bin. A search by halves: reading the
    whole row of each sample would cost as many reads as there are bounds.
    """
    n_bounds, bounds = bin_bounds_VJ.shape[1], bin_bounds_VJ.flatten()
    place_B = row_B * n_bounds
    last_B = place_B + n_bins_V[row_B] - 1
    for power in reversed(range((n_bounds - 2).bit_length())):  # n_bounds − 1 bins: places 0 to n_bounds − 2
        ahead_B = torch.minimum(place_B + 2**power, last_B)
        place_B = torch.where(logit_B >= bounds.gather(0, ahead_B), ahead_B, place_B)
    return place_B


class FunctionTable(nn.Module):
    """Bounds, knots and edge slopes of every field value, as buffers in float64: a look-up and one interpolation."""

    bin_bounds_VJ: Tensor
    knots_VJ: Tensor
    n_bins_V: Tensor
    slope_lower_V: Tensor
    slope_upper_V: Tensor

    def __init__(self, functions: BinFunctions, *, persistent: bool = True) -> None:
        super().__init__()
        for name in ("bin_bounds_VJ", "knots_VJ", "n_bins_V", "slope_lower_V", "slope_upper_V"):
            values = np.ascontiguousarray(getattr(functions, name))
            self.register_buffer(name, torch.from_numpy(values), persistent=persistent)

    @property
    def n_values(self) -> int:
        return len(self.n_bins_V)

    def forward(self, field_value_id_B: Tensor, logit_B: Tensor) -> Tensor:
        """Calibrated log-odds (float64) of un-calibrated log-odds."""
        return interpolate(
            self.bin_bounds_VJ,
            self.knots_VJ,
            self.n_bins_V,
            self.slope_lower_V,
            self.slope_upper_V,
            field_value_id_B,
            logit_B.double(),
        )


def stack_functions(functions: tuple[BinFunctions, ...]) -> BinFunctions:
    """Functions of several folds as one table: row fold · V + field_value_id; narrower ones are padded."""
    width = max(f.bin_bounds_VJ.shape[1] for f in functions)

    def pad(values_VJ: Floats, **how: Any) -> Floats:
        return np.pad(values_VJ, ((0, 0), (0, width - values_VJ.shape[1])), **how)

    return BinFunctions(
        bin_bounds_VJ=np.concatenate([pad(f.bin_bounds_VJ, constant_values=np.inf) for f in functions]),
        knots_VJ=np.concatenate([pad(f.knots_VJ, mode="edge") for f in functions]),
        n_bins_V=np.concatenate([f.n_bins_V for f in functions]),
        slope_lower_V=np.concatenate([f.slope_lower_V for f in functions]),
        slope_upper_V=np.concatenate([f.slope_upper_V for f in functions]),
    )
