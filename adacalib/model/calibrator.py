"""The trained calibrator as it serves: one table of curves and level shifts, and the auxiliary network.

Shape letters: B samples in the batch, V field values, R curves, J bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adacalib.cells.functions import FUNCTION_ARRAYS, BinFunctions
from adacalib.cells.logit_cells import Floats
from adacalib.model.auxiliary import LOGIT_SCALE, AuxiliaryNetwork
from adacalib.model.functions import FunctionTable


class Calibrator(nn.Module):
    """Un-calibrated logit, field value id and features → calibrated logit: a look-up, one interpolation, one network.

    calibrated logit = slope·(k + auxiliary(features, (k − center) / 1.5, embedding) + level_shift) + offset, k the
    value's function; of an unseen value the typical one's and, where its parent is known, the parent's level.

    Args:
        functions: per dense id; id 0 serves unseen values.
        level_shift_V: log-odds per dense id.
        center: log-odds of the mean label.
        auxiliary: the network, or None.
        parent_level_P: log-odds that an unseen value gets from its parent, by dense parent id; 0 for parent 0 (none).
            None where parents play no part.
        slope: forward slope.
        offset: log-odds that keep the mean where it was before the slope.
    """

    level_shift_V: Tensor
    center: Tensor
    slope: Tensor
    offset: Tensor
    parent_level_P: Tensor | None

    def __init__(
        self,
        functions: BinFunctions,
        level_shift_V: Floats,
        center: float,
        auxiliary: AuxiliaryNetwork | None,
        parent_level_P: Floats | None = None,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
    ) -> None:
        super().__init__()
        self.table = FunctionTable(functions)
        self.register_buffer("level_shift_V", torch.from_numpy(np.array(level_shift_V, np.float64)))
        for name, value in {"center": center, "slope": slope, "offset": offset}.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.auxiliary = auxiliary
        levels_P = None if parent_level_P is None else torch.from_numpy(np.array(parent_level_P, np.float64))
        self.register_buffer("parent_level_P", levels_P)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads besides field value id and logit."""
        own = () if self.parent_level_P is None else ("parent_id",)
        return (*own, *(() if self.auxiliary is None else self.auxiliary.columns))

    def forward(self, field_value_id_B: Tensor, uncalibrated_logit_B: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        """Calibrated log-odds (B,), float64."""
        unshifted_B = self.compute_unshifted(field_value_id_B, uncalibrated_logit_B, columns)
        shifted_B = unshifted_B + self.level_shift_V[field_value_id_B]
        return torch.add(self.slope * shifted_B, self.offset)

    def compute_unshifted(
        self, field_value_id_B: Tensor, uncalibrated_logit_B: Tensor, columns: Mapping[str, Tensor]
    ) -> Tensor:
        """Calibrated log-odds before level shift, slope and offset."""
        logit_B: Tensor = self.table(field_value_id_B, uncalibrated_logit_B)
        if self.parent_level_P is not None:
            from_parent_B = self.parent_level_P[columns["parent_id"].long()]
            logit_B = logit_B + torch.where(field_value_id_B == 0, from_parent_B, 0.0)
        if self.auxiliary is None:
            return logit_B
        term_B = self.auxiliary(columns, field_value_id_B, (logit_B - self.center) / LOGIT_SCALE)
        return torch.add(logit_B, term_B.double())

    def describe(self) -> dict[str, Any]:
        """Hyper-parameters from which `restore_calibrator` builds the same module."""
        return {
            "n_values": self.table.n_values,
            "shape": [int(size) for size in self.table.bin_bounds_RJ.shape],
            "auxiliary": self.auxiliary.hyper_parameters if self.auxiliary else None,
            "n_parent_ids": None if self.parent_level_P is None else len(self.parent_level_P),
        }


def restore_calibrator(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Calibrator:
    """Builds the calibrator that `describe` and `state_dict` were taken from; same scores to the last bit."""
    n_values, (n_rows, n_bounds) = description["n_values"], description["shape"]
    nothing = BinFunctions(
        bin_bounds_RJ=np.zeros((n_rows, n_bounds)),
        knots_RJ=np.zeros((n_rows, n_bounds)),
        n_bins_R=np.ones(n_rows, np.int64),
        slope_lower_R=np.ones(n_rows),
        slope_upper_R=np.ones(n_rows),
        row_V=np.zeros(n_values, np.int64),
        shift_V=np.zeros(n_values),
    )
    auxiliary = AuxiliaryNetwork(**description["auxiliary"]) if description["auxiliary"] else None
    n_parent_ids = description.get("n_parent_ids")
    parent_level_P = None if n_parent_ids is None else np.zeros(n_parent_ids)
    calibrator = Calibrator(nothing, np.zeros(n_values), 0.0, auxiliary, parent_level_P)
    calibrator.load_state_dict(dict(tensors))
    calibrator.eval()
    return calibrator


def functions_of(calibrator: Calibrator) -> BinFunctions:
    """The functions of the field values as arrays, to look at beside their posteriors.

    Level shift, slope and offset are in them where there is no auxiliary network. Where there is one, the shift takes
    back what the network adds to a value on average; one without the other would show every value off its posteriors.
    """
    functions = BinFunctions(**{name: getattr(calibrator.table, name).numpy() for name in FUNCTION_ARRAYS})
    if calibrator.auxiliary is not None:
        return functions
    slope, offset = float(calibrator.slope), float(calibrator.offset)
    return replace(
        functions,
        knots_RJ=slope * functions.knots_RJ,
        slope_lower_R=slope * functions.slope_lower_R,
        slope_upper_R=slope * functions.slope_upper_R,
        shift_V=slope * (functions.shift_V + calibrator.level_shift_V.numpy()) + offset,
    )


def parent_levels_of(calibrator: Calibrator) -> Floats | None:
    """What an unseen value gets from its parent, by dense parent id, beside `functions_of` without a network."""
    if calibrator.parent_level_P is None:
        return None
    return np.asarray(float(calibrator.slope) * calibrator.parent_level_P.numpy())
