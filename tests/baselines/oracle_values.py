"""The stored values of betacal and netcal (make_oracle_values.py), with their data as logit cells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from adacalib.cells.logit_cells import LogitCells, merge_cells

_VALUES = json.loads(Path(__file__).with_name("oracle_values.json").read_text())


def read_oracle(name, library) -> tuple[LogitCells, dict]:
    """(cells of the data set, all of value 1 and one per level of the score; what the library says of it)."""
    data = _VALUES["data_sets"][name]
    score, n, positive = (np.array(data[column]) for column in ("score", "n_samples", "n_responses"))
    logit = np.log(score) - np.log1p(-score)
    cell = np.floor(32 * logit).astype(np.int64)
    cells = merge_cells(np.ones_like(cell), cell, 1.0 * n, 1.0 * positive, n * logit, n, positive, 2)
    assert len(cells) == len(score)
    return cells, data[library]
