"""benchmarks/cluster.py: what it compares and judges. No cluster is started here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import cluster
from benchmarks.cluster import ClusterDidNotStart, judge, list_differences, make_table


def make_cells(cell: list[int], count: list[int], weight: list[float]) -> pa.Table:
    return pa.table({"field_value_id": [1] * len(cell), "cell": cell, "n_samples": count, "sum_weight": weight})


def test_order_and_rounding_are_no_difference() -> None:
    one = make_cells([1, 2], [5, 6], [0.1, 0.2])
    other = make_cells([2, 1], [6, 5], [0.2 * (1 + 1e-14), 0.1])
    assert list_differences(one, other, ("field_value_id", "cell")) == []


def test_what_differs_is_named() -> None:
    one = make_cells([1, 2], [5, 6], [0.1, 0.2])
    keys = ("field_value_id", "cell")
    assert list_differences(one, make_cells([1, 2], [5, 7], [0.1, 0.2 + 1e-9]), keys) == ["n_samples", "sum_weight"]
    assert list_differences(one, make_cells([1, 3], [5, 6], [0.1, 0.2]), keys) == ["cell"]
    assert list_differences(one, make_cells([1], [5], [0.1]), keys) == ["2 and 1 rows"]
    assert list_differences(one, make_cells([1, 2], [5, 6], [0.1, float("nan")]), keys) == ["sum_weight"]


def figures(cells: int, shuffled: int) -> dict[str, float]:
    return {"cells": cells, "shuffled": shuffled, "read": 0, "to_driver": 0, "seconds": 1.0, "executors": 2}


def test_bars_by_hand() -> None:
    found = {
        "local": {100: figures(10, 1000), 1000: figures(15, 1700)},  # × 1.5 cells, × 1.7 bytes: within 1.2 × 1.5
        "standalone": {100: figures(10, 1000), 1000: figures(15, 1900)},
    }
    bars = judge(found, {"standalone, 100 rows": [], "standalone, 1,000 rows": ["logit_cells.cell"]})
    assert [holds for _, holds in bars] == [True, False, True, False]
    assert bars[1][0] == "standalone, 1,000 rows: differs in logit_cells.cell"
    assert bars[2][0] == "local: rows × 10, cells × 1.50, bytes shuffled × 1.70"
    assert make_table(found).row_count == 4


def test_one_size_has_no_growth() -> None:
    assert judge({"local": {100: figures(10, 1000)}}, {}) == []


def test_a_cluster_that_does_not_come_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "bin"
    home.mkdir()
    (home / "spark-class").write_text("#!/bin/sh\necho no such class\n")
    (home / "spark-class").chmod(0o755)
    monkeypatch.setattr(cluster, "SPARK_HOME", tmp_path)
    monkeypatch.setattr(cluster, "START_LIMIT_S", 1)
    with (
        pytest.raises(ClusterDidNotStart, match=r"no two workers within 1 s; .*no such class"),
        cluster.standalone_cluster(),
    ):
        pass


def test_help_names_what_it_does() -> None:
    command = [sys.executable, cluster.__file__, "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "standalone cluster" in said and "--url" not in said
