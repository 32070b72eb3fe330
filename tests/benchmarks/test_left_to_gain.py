"""The part of the benchmark that runs nothing: what is left in cells, and how it is told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from adacalib.cells.logit_cells import LogitCells
from adacalib.config import read_config
from adacalib.io import write_json
from adacalib.model.unified import UnifiedModel, publish_unified
from benchmarks.left_to_gain import collect_calibrated_cells, main, make_table, measure_gains
from tests.cells.small_world import cells_of_rows
from tests.model.served_models import N_VALUES, make_calibrator


def draw_cells(level: float, slope: float) -> LogitCells:
    """30 values of 4,000 samples, half of them higher by level and steeper by slope, the other half the reverse."""
    rng = np.random.default_rng(3)
    z, logit = np.repeat(np.arange(1, 31), 4000), rng.normal(-1, 1, 120_000)
    sign = np.where(z % 2 == 0, 1, -1)
    truth = 1 / (1 + np.exp(-(logit + sign * (level + slope * (logit + 1)))))
    label = (rng.random(len(z)) < truth).astype(float)
    return cells_of_rows(z, logit, label, 31)


def test_what_is_there_is_found_and_nothing_else() -> None:
    # moving log-odds by ±δ costs about δ²·p(1 − p)/2 in LogLoss, here p(1 − p) averages .17
    level = measure_gains(draw_cells(0.4, 0.0), 1)
    assert level["level"] == pytest.approx(0.4**2 * 0.17 / 2, rel=0.15)
    assert abs(level["slope"]) < 1e-4 and abs(level["shape"]) < 1e-4
    slope = measure_gains(draw_cells(0.0, 0.4), 1)
    assert slope["slope"] > 0.005 and abs(slope["level"]) < 0.002 and abs(slope["shape"]) < 2e-4


def test_nothing_is_found_where_nothing_is() -> None:
    gains = measure_gains(draw_cells(0.0, 0.0), 1)
    assert max(abs(gains[part]) for part in ("level", "slope", "shape")) < 1.5e-4
    assert 0.4 < gains["log_loss"] < 0.7


def test_table_shows_means_over_seeds() -> None:
    gains = [{"log_loss": 0.44 + i / 100, "level": 1e-5 * i, "slope": 2e-5, "shape": -1e-6} for i in range(2)]
    text = io.StringIO()
    Console(file=text, width=120).print(make_table("flights", {"neucalib": gains}))
    assert "0.44500" in text.getvalue() and "0.000005 ± 0.000007" in text.getvalue()
    assert "-0.000001" in text.getvalue()


def test_cells_are_those_of_the_checkpoints_scores(tmp_path: Path) -> None:
    # what compare leaves behind, in small: 200 test rows in two files, and a method called "mine"
    rng = np.random.default_rng(4)
    ids, logit = rng.integers(0, N_VALUES, 200), rng.normal(-1, 2, 200).astype(np.float32)
    label, weight = rng.integers(0, 2, 200), rng.choice([0.5, 2.0], 200)
    folder = tmp_path / "scores" / "compare" / "seed_3"
    calibrator = make_calibrator(None)
    publish_unified(folder / "mine" / "unified", UnifiedModel(None, calibrator, "campaign"), {}, {})
    columns = {
        "label": pa.array(label, pa.int8()),
        "weight": weight,
        "field_value_id_campaign": pa.array(ids, pa.int32()),
        "uncalibrated_logit": logit,
    }
    test = folder / "tables" / "scored_samples" / "split=test"
    test.mkdir(parents=True)
    for part in (0, 1):
        pq.write_table(pa.table(columns).slice(100 * part, 100), test / f"part-{part}.parquet")
    write_json(folder / "tables" / "samples" / "_manifest.json", {"n_field_values": {"campaign": N_VALUES - 1}})
    config = read_config("configs/scores.yaml", [f"runs_dir={tmp_path}"])

    cells = collect_calibrated_cells(config, folder, "mine")
    calibrated = calibrator(torch.from_numpy(ids), torch.from_numpy(logit), {}).numpy()
    expected = cells_of_rows(ids, calibrated, label, N_VALUES, weight)
    for name in ("field_value_id", "cell", "n_samples", "n_responses"):
        np.testing.assert_array_equal(getattr(cells, name), getattr(expected, name))
    for name in ("weight", "response", "logit"):
        np.testing.assert_allclose(getattr(cells, name), getattr(expected, name), atol=1e-9)

    path = tmp_path / "left.json"
    arguments = ["--config", "configs/scores.yaml", "--seed", "3", "--json", str(path), "--set", f"runs_dir={tmp_path}"]
    assert main(arguments) == 0
    assert set(json.loads(path.read_text())["mine"][0]) == {"log_loss", "level", "slope", "shape"}


def test_a_run_without_comparison_is_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no trained methods; run `adacalib compare` before"):
        main(["--config", "configs/flights.yaml", "--seed", "1", "--set", f"runs_dir={tmp_path}"])
