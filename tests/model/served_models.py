"""Calibrators and unified models with parameters that are not zero, for the tests of serving."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.functions import BinFunctions, build_functions
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.calibrator import Calibrator
from adacalib.model.predictor import Predictor
from adacalib.model.unified import UnifiedModel

N_VALUES = 4


def make_functions() -> BinFunctions:
    """Four functions of up to three bins; id 2 has one."""
    bounds_VJ = np.array([[-3.0, -1, 0, 2], [-2.0, -1, 1, np.inf], [-1.0, 1, np.inf, np.inf], [-4.0, -2, 0, 1]])
    knots_VJ = np.array([[-2.5, -1, 0.2, 1], [-1, -0.9, 2, 2], [0.3, 0.7, 0, 0], [-5.0, -1, -0.5, 0]])
    return build_functions(BinBounds(bounds_VJ, np.array([3, 2, 1, 3])), knots_VJ)


def make_auxiliary(embedding: bool = True, takes_logit: bool = True) -> AuxiliaryNetwork:
    """A network that does something."""
    torch.manual_seed(5)
    network = AuxiliaryNetwork(2, [3], 4, [6], N_VALUES if embedding else None, takes_logit)
    torch.nn.init.normal_(network.output_layer.weight)
    return network


def make_calibrator(auxiliary: AuxiliaryNetwork | None) -> Calibrator:
    """A calibrator with a level shift per value."""
    return Calibrator(make_functions(), np.array([0.1, -0.2, 0.3, 0.05]), -0.7, auxiliary)


def make_model(predictor: bool, auxiliary: bool = True) -> UnifiedModel:
    """A unified model in eval mode."""
    torch.manual_seed(6)
    own = Predictor(3, [4], hidden=(8, 4, 4), embedding_width=2, mean_label=0.2) if predictor else None
    return UnifiedModel(own, make_calibrator(make_auxiliary() if auxiliary else None), "shop").eval()


def make_columns(n_rows: int = 50, seed: int = 1) -> dict[str, Tensor]:
    """Every column that one of the models may read."""
    rng = np.random.default_rng(seed)
    return {
        "uncalibrated_logit": torch.from_numpy(rng.normal(-1, 2, n_rows).astype(np.float32)),
        "field_value_id": torch.from_numpy(rng.integers(0, N_VALUES, n_rows).astype(np.int32)),
        "predictor_features": torch.from_numpy(rng.normal(size=(n_rows, 3)).astype(np.float32)),
        "predictor_category_ids": torch.from_numpy(rng.integers(0, 4, (n_rows, 1)).astype(np.int32)),
        "auxiliary_features": torch.from_numpy(rng.normal(size=(n_rows, 2)).astype(np.float32)),
        "auxiliary_category_ids": torch.from_numpy(rng.integers(0, 3, (n_rows, 1)).astype(np.int32)),
    }
