"""benchmarks/score.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import score
from benchmarks.score import DifferentScores, main


def test_from_the_command_line_to_json(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score.io, "start_session", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    command = ["--rows", "3000", "--field-values", "5", "--repeat", "2"]
    assert main([*command, "--runs-dir", str(tmp_path), "--json", str(tmp_path / "out.json")]) in (0, 1)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["seconds"].keys() == {"hand_over", "network", "arrow", "expressions"}
    assert document["ratio"].keys() == {"expressions_over_arrow", "network_over_hand_over", "arrow_over_hand_over"}
    assert "expressions_over_arrow" in capsys.readouterr().out


def test_ways_that_disagree_are_no_result(spark: SparkSession) -> None:
    one = spark.range(5).select(F.col("id").alias("sample_id"), F.col("id").cast("double").alias("calibrated_logit"))
    score._compare(one, one)
    with pytest.raises(DifferentScores, match="calibrate differently"):
        score._compare(one, one.withColumn("calibrated_logit", F.col("calibrated_logit") + 1e-5))
    with pytest.raises(DifferentScores):
        score._compare(one, one.filter("sample_id < 4"))
