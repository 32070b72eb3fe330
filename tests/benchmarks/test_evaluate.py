"""benchmarks/evaluate.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import evaluate
from benchmarks.evaluate import main


def test_from_the_command_line_to_json(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate.io, "start_session", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    command = ["--rows", "3000", "--field-values", "5", "--repeat", "1"]
    assert main([*command, "--runs-dir", str(tmp_path), "--json", str(tmp_path / "out.json")]) in (0, 1)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["seconds"].keys() == {"scan", "sums", "metrics", "evaluate"}
    assert document["ratio"].keys() == {"evaluate_over_scan", "sums_over_scan", "metrics_over_scan"}
    # the second score is calibrated, the first one .5 of log-odds too high in the mean
    uncalibrated, calibrated = (document["metrics"][method] for method in ("uncalibrated", "adacalib"))
    assert calibrated["log_loss"] < uncalibrated["log_loss"]
    assert "evaluate_over_scan" in capsys.readouterr().out
