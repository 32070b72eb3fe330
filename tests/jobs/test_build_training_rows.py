"""training_rows from scored samples, and from logit cells where there is no auxiliary network to feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig, parse_config
from adacalib.manifest import MixedTables, TableMissing
from adacalib.model.calibrator_training import train_calibrator
from adacalib.model.row_files import open_rows
from adacalib.model.unified import load_model
from jobs import build_training_rows
from tests.small_runs import draw_world, make_config, merge, run_stages, write_input

CHANGES: dict[str, Any] = {
    "fields": ["shop", "town"],
    "input": {"weight": "w", "date": "day"},
    "features": {"numeric": ["price"]},
    "calibrator": {"mode": "paper", "epochs": 2, "auxiliary": {"enabled": False, "batch_size": 256}},
    "bins": {"n_bins_candidates": [3, 5]},
}


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Paper mode without network, two fields, ten days, weights."""
    folder = tmp_path_factory.mktemp("cells")
    write_input(folder, draw_world(1500))
    return run_stages(spark, make_config(folder, CHANGES), until="build_training_rows")


def build_variant(spark: SparkSession, base: RunConfig, folder: Path, **changes: Any) -> RunConfig:
    """Another run's training_rows, from the base's tables."""
    others = {"runs_dir": str(folder), "inputs_from": str(base.run_dir), **changes}
    variant = parse_config(merge(base.model_dump(mode="json"), others))
    build_training_rows.run(spark, variant)
    return variant


def test_rows_are_made_from_the_cells_of_the_calibrated_field(spark: SparkSession, config: RunConfig) -> None:
    manifest = io.read_manifest(config, "training_rows")
    assert (manifest["made_from"], manifest["fit_on"]) == ("logit_cells", "train_and_dev")
    rows = io.read_table(spark, config, "training_rows", schemas.TRAINING_ROWS)
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    fitted = scored.filter("split != 'test'").withColumnRenamed("field_value_id_shop", "field_value_id")
    keys = ["field_value_id", "label"]
    found, expected = (
        {(row[0], row[1]): row[2] for row in frame.groupBy(*keys).agg(F.sum("weight")).collect()}
        for frame in (rows, fitted)
    )
    assert found == pytest.approx(expected)
    # the days of a cell are one per label, dealt to as many rows as keep each to the average; nothing is held out
    cell = F.floor(F.col("uncalibrated_logit").cast("double") * 32)
    cells = fitted.groupBy(*keys, cell).agg(F.sum("weight").alias("weight")).collect()
    weight = np.array([row["weight"] for row in cells])
    assert rows.count() == np.ceil(weight / weight.mean() * (1 - 1e-9)).sum() < 2 * len(cells)
    assert rows.filter("hold_out != 0").count() == 0


def test_few_files_and_one_per_rank(spark: SparkSession, config: RunConfig, tmp_path: Path) -> None:
    # a training opens every file in every pass
    assert len(open_rows(config.run_dir / "tables" / "training_rows").paths) == 1
    ranks = build_variant(spark, config, tmp_path / "ranks", training={"ranks": 3})
    assert len(open_rows(ranks.run_dir / "tables" / "training_rows").paths) == 3
    small = build_variant(spark, config, tmp_path / "small", training={"rows_per_row_group": 300})
    files = open_rows(small.run_dir / "tables" / "training_rows")
    # about so many rows each, whatever days and other fields add to the table of cells
    assert files.rows / 300 <= len(files.paths) <= 2 * files.rows / 300 + 1


def test_paper_mode_trains_on_them(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adacalib.model.cell_passes.MIN_STEPS_ON_CELLS", 60)
    train_calibrator(config)
    artifact = load_model(config.run_dir / "unified", "shop")[1]
    curve = artifact.documents["training"]["loss_curves"]["paper"]
    n_rows = io.read_manifest(config, "training_rows")["rows"]
    assert len(curve) == 2
    assert all(epoch["rows"] % n_rows == 0 and epoch["rows"] >= 30 * 256 for epoch in curve)
    assert curve[1]["training_loss"] < curve[0]["training_loss"]


def test_with_a_network_rows_are_the_samples(spark: SparkSession, config: RunConfig, tmp_path: Path) -> None:
    variant = build_variant(spark, config, tmp_path, calibrator={"auxiliary": {"enabled": True}})
    manifest = io.read_manifest(variant, "training_rows")
    splits = io.read_manifest(config, "samples")["splits"]
    assert manifest["made_from"] == "scored_samples"
    assert manifest["rows"] == sum(splits[split]["n_samples"] for split in ("train", "dev"))
    rows = io.read_table(spark, variant, "training_rows", schemas.TRAINING_ROWS)
    assert rows.filter("hold_out = 1").count() > 0
    assert rows.filter("size(auxiliary_features) != 1").count() == 0
    # the base's own, of cells, are not for this network
    without_own = {"runs_dir": str(tmp_path / "none"), "inputs_from": str(config.run_dir)}
    with pytest.raises(MixedTables, match="made from logit cells, which have no features for the auxiliary network"):
        train_calibrator(parse_config(merge(variant.model_dump(mode="json"), without_own)))


def test_without_cells_there_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match="table logit_cells is not there; run `adacalib build_logit_cells`"):
        build_training_rows.run(spark, make_config(tmp_path, CHANGES))
