"""benchmarks/bin_statistics.py and the table it reads."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from benchmarks import bin_statistics
from benchmarks.bin_statistics import main
from benchmarks.scored_rows import make_field_values, make_scored_rows
from tests.assert_table import collect_rows


def read(spark: SparkSession, path: Path) -> dict[str, np.ndarray]:
    table = spark.read.parquet(str(path)).toPandas()
    return {name: table[name].to_numpy() for name in table.columns}


def test_rows_are_zipf_and_the_same_whatever_the_files(spark: SparkSession, tmp_path: Path) -> None:
    n_rows, n_values = 20_000, 50
    for name, files in (("one", 1), ("five", 5)):
        make_scored_rows(spark, n_rows, n_values, files=files).write.parquet(str(tmp_path / name))
    one, five = (read(spark, tmp_path / name) for name in ("one", "five"))
    keys = ("field_value_id_f", "uncalibrated_logit", "label")
    assert all(np.array_equal(np.sort(one[name]), np.sort(five[name])) for name in keys)
    values, counts = np.unique(one["field_value_id_f"], return_counts=True)
    assert values.tolist() == list(range(1, n_values + 1))
    # value k has the share ln((k + 1)/k)/ln 51: .176 for the first; five standard deviations are .0135
    assert counts[0] / n_rows == pytest.approx(math.log(2) / math.log(51), abs=0.0135)
    assert one["uncalibrated_logit"].mean() == pytest.approx(-3.5, abs=0.045)
    assert one["uncalibrated_logit"].std() == pytest.approx(1.2, abs=0.03)
    # the logit means something: those who respond have a higher one
    assert one["uncalibrated_logit"][one["label"] == 1].mean() > one["uncalibrated_logit"].mean() + 0.5
    named = {row["field_value_id"]: row for row in collect_rows(make_field_values(spark, n_values))}
    assert set(named) == {0, *values.tolist()}
    assert [(named[i]["field_value"], named[i]["value_kind"]) for i in (0, 7)] == [(None, "unseen"), ("7", "value")]


def test_head_share_goes_to_one_value(spark: SparkSession, tmp_path: Path) -> None:
    make_scored_rows(spark, 10_000, 50, head_share=0.5).write.parquet(str(tmp_path / "rows"))
    share = np.mean(read(spark, tmp_path / "rows")["field_value_id_f"] == 1)
    assert share == pytest.approx(0.5 + 0.5 * math.log(2) / math.log(51), abs=0.025)


def test_from_the_command_line_to_json(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bin_statistics.io, "start_session", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    command = ["--rows", "3000", "--field-values", "5", "--repeat", "2", "--without", "duckdb"]
    command += ["--runs-dir", str(tmp_path), "--json", str(tmp_path / "out.json")]
    assert main(command) in (0, 1)  # a bar may fail on 3,000 rows
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["rows"], document["field_values"]) == (3000, 5) and document["cells"] > 100
    assert document["seconds"].keys() == {"scan", "logit_cells", "logit_cell_method", "approx_quantile"}
    assert document["ratio"].keys() == {"cells_over_scan", "cells_over_approx_quantile"}
    assert "cells_over_scan" in capsys.readouterr().out
    cells = collect_rows(spark.read.parquet(str(tmp_path / "bin_statistics" / "cells")))
    assert sum(row["n_samples"] for row in cells) == 3000
