"""Fixtures of the tests of distributed training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adacalib.launch import launch
from tests.model.toy_training import toy_config, write_config, write_rows


@pytest.fixture(scope="session")
def rank_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables: `uneven` (107 rows, 4 row groups), `single` (one row group), `faulty` (a NaN in one of two files)."""
    folder = tmp_path_factory.mktemp("ranks")
    write_rows(folder / "uneven", {"a.parquet": [50, 30, 7], "b.parquet": [20]})
    write_rows(folder / "single", {"a.parquet": [30]})
    write_rows(folder / "faulty", {"good.parquet": [20], "bad.parquet": [20]})
    bad = pq.read_table(folder / "faulty" / "bad.parquet")
    features = np.stack(bad["features"].to_pandas().to_numpy())
    features[7, 0] = np.nan
    column = pa.array(list(features), pa.list_(pa.float32()))
    pq.write_table(
        bad.set_column(bad.schema.get_field_index("features"), "features", column), folder / "faulty/bad.parquet"
    )
    return folder


@pytest.fixture(scope="session")
def two_ranks(rank_folder: Path) -> list[dict[str, Any]]:
    """What tests/model/rank_checks.py found on rank 0 and on rank 1."""
    config = write_config(toy_config(rank_folder, ranks=2), rank_folder / "config.json")
    launch("tests.model.rank_checks", config, ranks=2, timeout_seconds=300)
    return [json.loads((rank_folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
