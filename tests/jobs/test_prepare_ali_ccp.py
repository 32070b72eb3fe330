"""The four files of Ali-CCP become a table, a table of rejects and counts; and a run takes them to metrics."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib import io
from adacalib.config import read_config
from jobs import prepare_ali_ccp
from tests.ali_ccp_files import list_common_faults, list_skeleton_faults, parse_files, write_files
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import run_stages

CONFIG = Path(__file__).parents[2] / "configs" / "ali_ccp.yaml"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("ali_ccp") / "raw"
    return folder, write_files(folder)


@pytest.fixture(scope="module")
def out(spark: SparkSession, raw: tuple[Path, dict[str, list[str]]]) -> Path:
    folder = raw[0].parent / "out"
    prepare_ali_ccp.run(spark, raw[0], folder, seed=7)
    return folder


def read_table(out: Path, table: str) -> list[dict[str, Any]]:
    return collect_rows(pq.read_table(str(out / table)))


def test_samples_are_the_plain_parsers(out: Path, raw: tuple[Path, dict[str, list[str]]]) -> None:
    samples = read_table(out, "samples")
    splits = {row["sample_id"]: row.pop("split") for row in samples}
    wanted, _ = parse_files(raw[1])
    assert_table(samples, wanted.values(), ["sample_id"], rtol=1e-12)
    assert len(samples) == 400 + 200 + 1
    assert {key for key, split in splits.items() if split == "test"} == {key for key in wanted if key[:4] == "test"}


def test_rejects_are_the_plain_parsers(out: Path, raw: tuple[Path, dict[str, list[str]]]) -> None:
    found: dict[str, Counter[str]] = {name: Counter() for name in raw[1]}
    for row in read_table(out, "rejects"):
        found[row["file"]][row["line"]] += row["n_rows"]
    assert found == parse_files(raw[1])[1]


def test_manifest_counts_what_is_there(out: Path, raw: tuple[Path, dict[str, list[str]]]) -> None:
    counts = json.loads((out / prepare_ali_ccp.MANIFEST).read_text())
    skeleton_faults, common_faults = list_skeleton_faults(), list_common_faults()
    file = counts["files"]["sample_skeleton_train"]
    assert (file["n_lines"], file["n_rejected"]) == (401 + len(skeleton_faults), len(skeleton_faults))
    assert file["reasons"] == Counter(reason for _, reasons in skeleton_faults for reason in reasons)
    assert file["reasons"]["conversion without click"] == 1
    assert counts["files"]["sample_skeleton_test"] == {"n_lines": 200, "n_rejected": 0, "reasons": {}}
    assert counts["files"]["common_features_train"]["n_rejected"] == len(common_faults)

    samples = read_table(out, "samples")
    for split in ("train", "dev", "test"):
        rows = [row for row in samples if row["split"] == split]
        assert counts["splits"][split]["n_samples"] == len(rows)
        assert counts["splits"][split]["n_clicks"] == sum(row["click"] for row in rows)
        assert counts["splits"][split]["missing"]["user_group"] == sum(row["user_group"] is None for row in rows) > 0
        assert "item_intentions_n" not in counts["splits"][split]["missing"]
    # users 11 and 22 have two groups; the first of them counts
    two = [row for row in samples if row["user_profile"] in ("121001", "121002")]
    assert counts["repeated_fields"].keys() == {"user_group"}
    assert 0 < counts["repeated_fields"]["user_group"] < len(two)


def test_missing_and_doubled_files_are_named(spark: SparkSession, raw: tuple[Path, dict], tmp_path: Path) -> None:
    shutil.copytree(raw[0], tmp_path / "raw")
    (tmp_path / "raw" / "common_features_test.csv").rename(tmp_path / "raw" / "common_features_tests.csv")
    with pytest.raises(io.InputError, match=r"common_features_test\.csv or .*\.gz: neither is there"):
        prepare_ali_ccp.run(spark, tmp_path / "raw", tmp_path / "out", seed=7)
    with pytest.raises(io.InputError, match=r"common_features_test\.csv.* cannot be read"):
        prepare_ali_ccp.run(spark, f"file://{tmp_path}/raw", tmp_path / "out", seed=7)
    for suffix in (".csv", ".csv.gz"):
        (tmp_path / "raw" / f"common_features_test{suffix}").touch()
    with pytest.raises(io.InputError, match="both are there"):
        prepare_ali_ccp.run(spark, tmp_path / "raw", tmp_path / "out", seed=7)
    assert not (tmp_path / "out").exists()


def test_failure_leaves_the_former_result(
    spark: SparkSession, out: Path, raw: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    shutil.copytree(out, tmp_path / "out")
    write_files(tmp_path / "raw", 30, 20, faults=False)
    file = tmp_path / "raw" / "sample_skeleton_test.csv"
    file.write_text(file.read_text().replace(",", ";"))
    with pytest.raises(io.InputError, match=r"no usable impression for test(.|\n)*'line has not 6 columns': 20"):
        prepare_ali_ccp.run(spark, tmp_path / "raw", tmp_path / "out", seed=7)
    file.with_suffix(".csv.gz").write_bytes(gzip.compress(b"1,0,0\n" * 9999)[:-9])  # a download that broke off
    file.unlink()
    with pytest.raises(io.InputError, match=r"cannot be read.*Download that file again"):
        prepare_ali_ccp.run(spark, tmp_path / "raw", tmp_path / "out", seed=7)
    assert read_table(tmp_path / "out", "samples") == read_table(out, "samples")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"], "no staging folder is left"


def test_a_new_result_replaces_the_former(spark: SparkSession, out: Path, tmp_path: Path) -> None:
    """Through the command line of spark-submit."""
    shutil.copytree(out, tmp_path / "out")
    write_files(tmp_path / "raw", 30, 20, faults=False)
    with mock.patch.object(spark, "stop"):  # the session is the tests'
        prepare_ali_ccp.main(["--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "out"), "--seed", "3"])
    assert len(read_table(tmp_path / "out", "samples")) == 30 + 1 + 20
    assert json.loads((tmp_path / "out" / prepare_ali_ccp.MANIFEST).read_text())["seed"] == 3


def test_lines_that_got_lost_are_noticed() -> None:
    split = {"n_samples": 10, "n_clicks": 1, "n_conversions": 0, "missing": {}}
    files = {
        "sample_skeleton_train": {"n_lines": 21, "n_rejected": 0, "reasons": {}},
        "sample_skeleton_test": {"n_lines": 10, "n_rejected": 0, "reasons": {}},
    }
    with pytest.raises(io.InputError, match="sample_skeleton_train: 21 lines became 20 samples and 0 rejects"):
        prepare_ali_ccp.check_counts({"files": files, "splits": dict.fromkeys(("train", "dev", "test"), split)}, "raw")


def test_a_folder_of_something_else_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    with pytest.raises(io.InputError, match="not written by this job"):
        prepare_ali_ccp.run(spark, tmp_path / "raw", tmp_path / "thesis", seed=7)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "mine"


def test_compressed_files_behind_a_uri_become_metrics(spark: SparkSession, tmp_path: Path) -> None:
    files = write_files(tmp_path / "raw", 2000, 800)
    for name in files:
        file = tmp_path / "raw" / f"{name}.csv"
        file.with_suffix(".csv.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    prepare_ali_ccp.run(spark, f"file://{tmp_path}/raw", tmp_path / "out", seed=7)
    overrides = {
        "runs_dir": tmp_path / "runs",
        "input.path": tmp_path / "out" / "samples",
        "training.ranks": 1,
        "training.rows_per_row_group": 512,
        "predictor.hidden": [16, 8, 8],
        "predictor.batch_size": 128,
        "calibrator.auxiliary.hidden": [8],
        "calibrator.auxiliary.epochs": 1,
        "calibrator.auxiliary.batch_size": 256,
        "evaluation.jackknife_groups": 10,
        "evaluation.attainable_draws": 2,
    }
    config = read_config(CONFIG, tuple(f"{key}={value}" for key, value in overrides.items()))
    run_stages(spark, config)
    metrics = json.loads((config.run_dir / "metrics.json").read_text())
    assert (metrics["field"], metrics["n_test"]) == ("user_group", 800)
    assert 0 < metrics["methods"]["adacalib"]["log_loss"] < math.log(2)
    samples = io.read_manifest(config, "samples")
    prepared = json.loads((tmp_path / "out" / prepare_ali_ccp.MANIFEST).read_text())
    for split, counts in prepared["splits"].items():
        assert samples["splits"][split]["n_samples"] == counts["n_samples"]
        assert samples["splits"][split]["n_responses"] == counts["n_clicks"]
    # groups 0 to 4 and missing; 122999 is never the first of two
    assert samples["n_field_values"] == {"user_group": 6}
    assert samples["rejected"]["n_rejected"] == 0
