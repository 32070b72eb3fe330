"""calibrator.fit_on: dev. What the calibrator is fitted on has no row of train in it, and tables of both never mix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.cells.functions import interpolate
from adacalib.config import ConfigError, RunConfig, parse_config
from adacalib.manifest import MixedTables
from adacalib.model.calibrator import functions_of
from adacalib.model.calibrator_training import train_calibrator
from adacalib.model.unified import load_model
from jobs import build_training_rows, compute_bin_statistics
from tests.small_runs import draw_world, make_config, merge, run_stage, run_stages, write_input

N_ROWS = 2500
CHANGES: dict[str, Any] = {
    "fields": ["shop", "town"],
    "input": {"weight": "w"},
    "split": {"by": "column", "column": "part"},
    "features": {"numeric": ["price"]},
    "calibrator": {"fit_on": "dev", "auxiliary": {"hidden": [8], "epochs": 1, "batch_size": 256}},
    "bins": {"n_bins_candidates": [5]},
}
TRAIN_ONLY = ("shop 0", "shop 9")
TABLES = ("logit_cells", "bin_statistics", "training_rows")


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The most frequent shop (id 1) and a rare one are in train alone: the calibrator knows their ids, no more."""
    folder = tmp_path_factory.mktemp("dev")
    columns = draw_world(N_ROWS, seed=4)
    part = np.random.default_rng(3).choice(["train", "dev", "test"], N_ROWS, p=[0.5, 0.3, 0.2])
    columns["part"] = ["train" if shop in TRAIN_ONLY else p for shop, p in zip(columns["shop"], part, strict=True)]
    write_input(folder, columns)
    return run_stages(spark, make_config(folder, CHANGES))


def read_dev(spark: SparkSession, config: RunConfig) -> Any:
    return io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields)).filter("split = 'dev'")


def test_cells_of_every_field_are_those_of_dev(spark: SparkSession, config: RunConfig) -> None:
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    sums = ("n_samples", "n_responses", "sum_weight")
    found = {row["field"]: row for row in cells.groupBy("field").agg(*(F.sum(s).alias(s) for s in sums)).collect()}
    dev = read_dev(spark, config).agg(F.count("*").alias("n"), F.sum("label").alias("y"), F.sum("weight").alias("w"))
    expected = dev.collect()[0]
    assert set(found) == {"shop", "town"}
    for row in found.values():
        assert (row["n_samples"], row["n_responses"]) == (expected["n"], expected["y"])
        assert row["sum_weight"] == pytest.approx(expected["w"])


def test_bins_and_rows_are_those_of_dev(spark: SparkSession, config: RunConfig) -> None:
    dev = read_dev(spark, config)
    bins = io.read_table(spark, config, "bin_statistics", schemas.BIN_STATISTICS)
    whole = bins.filter("field_value_id = 0").agg(F.sum("n_samples")).collect()[0][0]
    rows = io.read_table(spark, config, "training_rows", schemas.TRAINING_ROWS)
    assert whole == rows.count() == dev.count() < 0.4 * N_ROWS
    keys = ["field_value_id", "label", "weight"]
    found, expected = (
        frame.groupBy(*keys).count().orderBy(*keys).collect()
        for frame in (rows, dev.withColumnRenamed("field_value_id_shop", "field_value_id"))
    )
    assert [tuple(row) for row in found] == [tuple(row) for row in expected]


def test_manifests_say_so_and_metrics_count_dev(spark: SparkSession, config: RunConfig) -> None:
    assert {io.read_manifest(config, table)["fit_on"] for table in TABLES} == {"dev"}
    assert "fit_on" not in io.read_manifest(config, "scored_samples")
    metrics = json.loads((config.run_dir / "metrics.json").read_text())
    assert metrics["n_fit"] == read_dev(spark, config).count()
    assert metrics["methods"]["adacalib"]["log_loss"] < metrics["methods"]["uncalibrated"]["log_loss"]


def test_a_value_of_train_alone_has_no_bins_of_its_own(spark: SparkSession, config: RunConfig) -> None:
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    chosen = values.filter((F.col("field") == "shop") & F.col("field_value").isin(*TRAIN_ONLY)).collect()
    ids = sorted(row["field_value_id"] for row in chosen)
    assert ids[0] == 1 and len(ids) == 2 and all(row["n_samples"] > 0 for row in chosen)
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS).filter("field = 'shop'")
    assert cells.filter(F.col("field_value_id").isin(*ids)).count() == 0
    functions = functions_of(load_model(config.run_dir / "unified", "shop")[0].calibrator)
    line = np.linspace(-5, 4, 50)
    unseen, *known = (interpolate(functions, np.full(50, i), line) for i in (0, *ids, 2))
    np.testing.assert_array_equal(known[0], unseen)
    np.testing.assert_array_equal(known[1], unseen)
    assert np.abs(known[2] - unseen).max() > 0.1


@pytest.mark.parametrize("method", ["logit_cells", "approx_quantile"])
def test_a_run_on_the_tables_of_another_makes_its_own_where_it_must(
    spark: SparkSession, config: RunConfig, tmp_path: Path, method: str
) -> None:
    changes = {
        "runs_dir": str(tmp_path),
        "inputs_from": str(config.run_dir),
        "calibrator": {"fit_on": "train_and_dev"},
        "bins": {"method": method},
    }
    other = parse_config(merge(config.model_dump(mode="json"), changes))
    with pytest.raises(MixedTables, match=r"logit_cells, .* another calibrator.fit_on than train_and_dev; run from"):
        train_calibrator(other)
    if method == "logit_cells":
        with pytest.raises(MixedTables, match="run from build_logit_cells again"):
            compute_bin_statistics.run(spark, other)
    for stage in other.stages:
        run_stage(spark, other, stage)
    n_fit = io.read_manifest(config, "samples")["splits"]
    assert io.read_manifest(other, "training_rows")["rows"] == sum(n_fit[s]["n_samples"] for s in ("train", "dev"))
    assert io.read_manifest(config, "training_rows")["rows"] == n_fit["dev"]["n_samples"]  # as it was
    bins = io.read_table(spark, other, "bin_statistics", schemas.BIN_STATISTICS)
    whole = bins.filter("field_value_id = 0").agg(F.sum("n_samples")).collect()[0][0]
    assert whole == io.read_manifest(other, "training_rows")["rows"]
    assert (other.run_dir / "unified").is_dir()


def test_rows_of_one_kind_and_cells_of_the_other_never_mix(
    spark: SparkSession, config: RunConfig, tmp_path: Path
) -> None:
    changes = {
        "runs_dir": str(tmp_path),
        "inputs_from": str(config.run_dir),
        "calibrator": {"fit_on": "train_and_dev"},
    }
    other = parse_config(merge(config.model_dump(mode="json"), changes))
    build_training_rows.run(spark, other)
    with pytest.raises(MixedTables, match=r"logit_cells, bin_statistics made with another calibrator.fit_on"):
        train_calibrator(other)
    again = parse_config(merge(other.model_dump(mode="json"), {"calibrator": {"fit_on": "dev"}}))
    with pytest.raises(MixedTables, match=r"training_rows made with another calibrator.fit_on than dev"):
        train_calibrator(again)


def test_dev_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fit_on: dev, but split\.dev is 0: give it rows"):
        make_config(tmp_path, {"calibrator": {"fit_on": "dev"}, "split": {"train": 0.8, "dev": 0.0, "test": 0.2}})
