"""benchmarks/stream.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adacalib.config import RunConfig
from adacalib.model.row_files import open_rows
from adacalib.model.stream import stream_batches
from benchmarks import stream
from benchmarks.stream import main, read_with_pyarrow
from tests.model.calibrator_world import draw_rows, make_config, write_world
from tests.model.toy_training import write_config

COLUMNS = ("label", "uncalibrated_logit", "auxiliary_features", "auxiliary_category_ids")


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    config = make_config(tmp_path)
    write_world(config, draw_rows(700))
    return config


def test_both_ways_read_the_same_rows(config: RunConfig) -> None:
    rows = open_rows(config.run_dir / "tables" / "training_rows", "hold_out=0")
    plain = list(read_with_pyarrow(rows, COLUMNS, 100))
    streamed = [batch.columns for batch in stream_batches(rows, COLUMNS, 100)]
    assert len(plain[0]["label"]) == 100
    for column in COLUMNS:
        one, other = (np.concatenate([batch[column] for batch in batches]) for batches in (plain, streamed))
        assert one.shape == other.shape
        np.testing.assert_array_equal(np.sort(one, axis=0), np.sort(other, axis=0))


def test_from_the_command_line_to_json(config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(config, tmp_path / "config.json")
    out = tmp_path / "out.json"
    assert main(["--config", str(path), "--times", "3", "--repeat", "2", "--json", str(out)]) in (0, 1)
    document = json.loads(out.read_text())
    n_rows = open_rows(config.run_dir / "tables" / "training_rows", "hold_out=0").rows
    assert document["rows"] == 3 * n_rows
    assert document["columns"] == [*stream.COLUMNS, *stream.FEATURES]
    assert document["ratio"].keys() == {"stream_over_pyarrow"}
    assert "bar 1.3" in capsys.readouterr().out


def test_rows_that_do_not_arrive_are_no_result(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "read_with_pyarrow", lambda *_: iter([{"label": np.zeros(5)}]))
    path = write_config(config, tmp_path / "config.json")
    with pytest.raises(stream.OtherRows, match="5 rows arrived of"):
        main(["--config", str(path), "--json", str(tmp_path / "out.json")])
