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
    bin_bounds_BJ: Tensor,
    knots_BJ: Tensor,
    n_bins_B: Tensor,
    slope_lower_B: Tensor,
    slope_upper_B: Tensor,
    logit_B: Tensor,
) -> Tensor:
    """Calibrated log-odds of each sample by its own bounds and knots; the twin of adacalib.cells.functions.interpolate.

    bin_index = clip(#{k : s ≥ b_k} − 1, 0, n_bins − 1) by compare and sum, which exports everywhere; beyond the outer
    bounds the given slopes go on. Gradients flow to the knots and slopes.
    """
    passed_B = (logit_B[:, None] >= bin_bounds_BJ).sum(dim=1)
    index_B1 = torch.minimum((passed_B - 1).clamp_min(0), n_bins_B - 1)[:, None]
    lower_B, upper_B = bin_bounds_BJ.gather(1, index_B1)[:, 0], bin_bounds_BJ.gather(1, index_B1 + 1)[:, 0]
    lower_knot_B, upper_knot_B = knots_BJ.gather(1, index_B1)[:, 0], knots_BJ.gather(1, index_B1 + 1)[:, 0]
    inside_B = lower_knot_B + (upper_knot_B - lower_knot_B) / (upper_B - lower_B) * (logit_B - lower_B)
    below_B = lower_knot_B + slope_lower_B * (logit_B - lower_B)
    above_B = upper_knot_B + slope_upper_B * (logit_B - upper_B)
    return torch.where(logit_B < lower_B, below_B, torch.where(logit_B >= upper_B, above_B, inside_B))


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
            self.bin_bounds_VJ[field_value_id_B],
            self.knots_VJ[field_value_id_B],
            self.n_bins_V[field_value_id_B],
            self.slope_lower_V[field_value_id_B],
            self.slope_upper_V[field_value_id_B],
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
