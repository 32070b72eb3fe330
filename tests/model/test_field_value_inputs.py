"""What `train_calibrator` makes of field values: those that dev does not have, and their parents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from adacalib.config import RunConfig
from adacalib.model.calibrator_training import _read_parents, train_calibrator
from adacalib.model.unified import load_model
from tests.model.calibrator_world import Rows, draw_rows, make_config, write_table, write_world


def score(config: RunConfig, rows: Rows) -> np.ndarray:
    """Calibrated log-odds of rows by the published checkpoint."""
    model, _ = load_model(config.run_dir / "unified", "shop")
    with torch.no_grad():
        return model({name: torch.from_numpy(values) for name, values in rows.items()}).calibrated_logit.numpy()


@pytest.mark.parametrize("mode", ["robust", "isotonic_offset", "paper", "neucalib"])
def test_a_value_without_rows_in_dev_is_served_as_unseen(tmp_path: Path, mode: str) -> None:
    drawn = draw_rows(2000)
    rows = {name: values[drawn["field_value_id"] != 3] for name, values in drawn.items()}
    changes = {"calibrator": {"mode": mode, "fit_on": "dev", "epochs": 1, "auxiliary": {"enabled": False}}}
    config = make_config(tmp_path, changes | {"bins": {"n_bins_candidates": [3, 6] if mode == "paper" else [6]}})
    write_world(config, rows)
    bins = config.run_dir / "tables" / "bin_statistics" / "part-0.parquet"
    table = pq.read_table(bins)  # Spark writes no bins for it
    kept = table.filter(pc.not_equal(table["field_value_id"], 3))
    assert len(kept) < len(table)
    pq.write_table(kept, bins)
    manifest = bins.parent / "_manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"rows": len(kept)}))
    train_calibrator(config)
    line = np.float32(np.linspace(-4, 2, 30))
    unseen, own, other = (
        score(config, {"field_value_id": np.full(30, z, np.int32), "uncalibrated_logit": line}) for z in (0, 3, 1)
    )
    assert np.all(np.isfinite(own))
    np.testing.assert_allclose(own, unseen, atol=1e-9)
    assert mode == "neucalib" or np.abs(other - unseen).max() > 1e-3
    train_and_dev = make_config(tmp_path, {"bins": {"n_bins_candidates": [6]}})
    with pytest.raises(ValueError, match="have no bins"):  # there it is a fault
        train_calibrator(train_and_dev)


@pytest.mark.parametrize(
    ("parents", "expected"), [({2: 1, 5: 2}, [0, 0, 1, 0, 0, 2, 0]), ({}, [0] * 7)], ids=["some", "none"]
)
def test_parents_are_read_by_id(tmp_path: Path, parents: dict[int, int], expected: list[int]) -> None:
    config = make_config(tmp_path, {"parent": "town"})
    ids = np.array(list(parents), np.int32)
    own = pa.table(
        {
            "field": ["shop"] * len(ids),
            "field_value_id": ids,
            "parent": pa.array([f"p{k}" for k in parents.values()], pa.string()),
            "parent_id": np.array(list(parents.values()), np.int32),
        }
    )
    other = (
        pa.table({"field": ["town"], "field_value_id": ids[:1], "parent": ["p9"], "parent_id": ids[:1]})
        if parents
        else own
    )
    write_table(config.run_dir / "tables" / "field_value_parents", {"part-0.parquet": pa.concat_tables([own, other])})
    found = _read_parents(config, 7)
    assert found is not None and found.dtype == np.int64 and found.tolist() == expected
    assert _read_parents(make_config(tmp_path), 7) is None
