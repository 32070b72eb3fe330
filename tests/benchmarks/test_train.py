"""benchmarks/train.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adacalib.config import RunConfig
from adacalib.model.row_files import open_rows
from benchmarks.train import _keep, judge, main
from tests.model.calibrator_world import draw_rows, make_config, write_world
from tests.model.toy_training import write_config


def figures(speed: float, waiting: float = 0.0, peak: int = 100) -> dict[str, object]:
    return {"rows_per_second": [speed, speed], "waiting_share": [waiting, waiting], "peak_memory": peak}


def test_bars_by_hand() -> None:
    # disk / memory: 90/100, 70/100, 60/50: the median is .9; waiting: the median of 5, 5, 20, 20, 5, 5 %.
    disk = [figures(90, 0.05), figures(70, 0.2), figures(60, 0.05)]
    turns = {2: {"disk": disk, "memory": [figures(100), figures(100), figures(50)]}}
    bars = judge(turns, {1: figures(1, peak=100), 10: figures(1, peak=120)})
    assert [(measured, holds) for _, measured, _, holds in bars] == [
        (pytest.approx(0.9), True),
        (pytest.approx(0.05), True),
        (pytest.approx(1.2), False),
    ]


def test_bars_that_fail() -> None:
    turns = {1: {"disk": [figures(79, 0.1)], "memory": [figures(100)]}}
    assert [holds for *_, holds in judge(turns, {})] == [False, False]


def test_memory_needs_two_sizes() -> None:
    turns = {1: {"disk": [figures(1)], "memory": [figures(1)]}}
    assert len(judge(turns, {1: figures(1)})) == 2


def test_kept_batches_are_read_once() -> None:
    calls = []

    def stream(epoch: int) -> object:
        calls.append(epoch)
        return iter(["a", "b"])

    kept = _keep(stream)  # type: ignore[arg-type]
    assert list(kept(1)) == list(kept(2)) == ["a", "b"]
    assert calls == [1]


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    config = make_config(tmp_path)
    write_world(config, draw_rows(1500))
    return config


def test_from_the_command_line_to_json(config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write_config(config, tmp_path / "config.json"), tmp_path / "out.json"
    command = ["--config", str(path), "--ranks", "1", "--epochs", "2", "--repeat", "1", "--times", "3"]
    assert main([*command, "--json", str(out)]) in (0, 1)
    document = json.loads(out.read_text())
    n_rows = open_rows(config.run_dir / "tables" / "training_rows", "hold_out=0").rows
    assert [epoch["rows"] for epoch in document["memory"]["3"]["epochs"]] == [3 * n_rows]
    for source in ("disk", "memory"):
        (turn,) = document["turns"]["1"][source]
        assert len(turn["rows_per_second"]) == 1  # of two epochs the first is left out
        assert turn["peak_memory"] > 0
    assert "rows × 3: peak memory of a rank" in capsys.readouterr().out


def test_profile_of_a_rank(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    path, profile = write_config(config, tmp_path / "config.json"), tmp_path / "profile.txt"
    command = ["--config", str(path), "--rank", "memory", "--profile", str(profile), "--json", str(tmp_path)]
    assert main(command) == 0
    assert "aten::addmm" in profile.read_text()
    assert json.loads((tmp_path / "rank_0.json").read_text())["peak_memory"] > 0
