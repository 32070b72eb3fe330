"""The same rows give the same run, whatever their files, order and partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from tests.assert_table import Rows, assert_table, collect_rows
from tests.small_runs import draw_world, make_config, run_stages, write_input

N_ROWS = 1500
CHANGES: dict[str, Any] = {
    "fields": ["shop", "town"],
    "input": {"weight": "w", "row_key": "key"},
    "features": {"numeric": ["price", "taste"], "categorical": ["device"]},
    "calibrator": {"auxiliary": {"hidden": [8], "epochs": 2, "batch_size": 256}},
}


def run_world(spark: SparkSession, folder: Path, **layout: Any) -> RunConfig:
    columns = draw_world(N_ROWS, seed=11)
    columns = {name: values + values[:200] for name, values in columns.items()}  # some rows repeat
    write_input(folder, columns, **layout)
    return run_stages(spark, make_config(folder, CHANGES))


@pytest.fixture
def five_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 5)
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return run_world(spark, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def again(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The same input a second time."""
    return run_world(spark, tmp_path_factory.mktemp("again"))


def read(spark: SparkSession, config: RunConfig, table: str) -> Rows:
    schema = {
        "samples": schemas.samples(config.fields),
        "calibrated_samples": schemas.calibrated_samples(config.fields),
        "field_values": schemas.FIELD_VALUES,
        "feature_encodings": schemas.FEATURE_ENCODINGS,
        "logit_cells": schemas.LOGIT_CELLS,
        "bin_statistics": schemas.BIN_STATISTICS,
    }[table]
    return collect_rows(io.read_table(spark, config, table, schema))


def read_document(config: RunConfig, name: str) -> Any:
    return json.loads((config.run_dir / name).read_text())


def read_fingerprint(config: RunConfig) -> str:
    return io.read_manifest(config, "calibrated_samples")["checkpoint_fingerprint"]


def test_the_same_input_twice_gives_the_same_bits(spark: SparkSession, first: RunConfig, again: RunConfig) -> None:
    assert read_fingerprint(first) == read_fingerprint(again)
    weights = [
        {file.name: file.read_bytes() for file in sorted((config.run_dir / "unified").rglob("*.safetensors"))}
        for config in (first, again)
    ]
    assert weights[0] and weights[0] == weights[1]
    assert_table(
        read(spark, first, "calibrated_samples"), read(spark, again, "calibrated_samples"), ["sample_id"]
    )  # bit-equal: no tolerance


def assert_close(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key in theirs:
            assert_close(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_close(a, b, f"{where}[{i}]")
    elif isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=where)
    else:
        assert ours == theirs, where


def test_the_same_input_twice_gives_the_same_metrics(first: RunConfig, again: RunConfig) -> None:
    for name in ("metrics.json", "evaluation.json"):
        assert_close(read_document(first, name), read_document(again, name))


def test_files_order_and_partitions_do_not_matter(
    spark: SparkSession, first: RunConfig, tmp_path: Path, five_partitions: None
) -> None:
    order = np.random.default_rng(1).permutation(N_ROWS + 200).tolist()
    other = run_world(spark, tmp_path, n_files=7, order=order)
    manifests = [io.read_manifest(config, "samples") for config in (first, other)]
    assert manifests[0]["input_fingerprint"] == manifests[1]["input_fingerprint"]
    for table, key in {
        "samples": ["sample_id"],
        "field_values": ["field", "field_value_id"],
        "feature_encodings": ["feature", "component", "category_id"],
    }.items():
        assert_table(read(spark, other, table), read(spark, first, table), key)  # ids and features to the bit
    for table, key in {
        "logit_cells": ["field", "field_value_id", "cell"],
        "bin_statistics": ["field_value_id", "n_bins_candidate", "bin_index"],
    }.items():
        assert_table(read(spark, other, table), read(spark, first, table), key, rtol=1e-12)
    scores = [
        {row["sample_id"]: row["calibrated_score"] for row in read(spark, config, "calibrated_samples")}
        for config in (first, other)
    ]
    np.testing.assert_allclose([scores[1][key] for key in scores[0]], list(scores[0].values()), rtol=1e-6)


def test_another_seed_gives_another_split(spark: SparkSession, first: RunConfig, tmp_path: Path) -> None:
    # the test of the tests above: the seed reaches the rows
    write_input(tmp_path, draw_world(N_ROWS, seed=11))
    config = run_stages(spark, make_config(tmp_path, CHANGES | {"seed": 8}), until="prepare_samples")
    splits = [{row["row_key"]: row["split"] for row in read(spark, c, "samples")} for c in (first, config)]
    assert splits[0] != splits[1]
