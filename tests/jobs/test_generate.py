"""A world is generated whole or not at all, and its configuration takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig, read_config
from adacalib.stats.world_rows import WORLD_ROWS
from adacalib.worlds.kinds import WORLDS, UnknownWorld
from adacalib.worlds.rows import draw_rows, make_world
from jobs import generate, prepare_samples

CONFIGS = Path(__file__).parent.parent.parent / "configs"


def read_world(path: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(path).sort_by("row_id")
    return {name: table[name].to_numpy() for name in table.column_names}


def list_hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_folder_has_the_rows_and_says_what_made_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "worlds" / "w"
    generate.run(spark, "public_like", 1_000, 5, path)
    found, expected = read_world(path), draw_rows(make_world("public_like", 5), np.arange(1_000))
    assert list(found) == WORLD_ROWS.fieldNames()
    for column, values in expected.items():
        assert found[column].tolist() == values.astype(found[column].dtype).tolist(), column
    assert json.loads((path / "_world.json").read_text()) == {"world": "public_like", "rows": 1_000, "seed": 5}
    assert spark.read.parquet(str(path)).count() == 1_000
    assert list_hidden(path.parent) == []


def test_through_the_command_line_of_spark_submit(spark: SparkSession, tmp_path: Path) -> None:
    with mock.patch.object(spark, "stop"):  # the session is the tests'
        generate.main(["--world", "ctr_like", "--rows", "40", "--seed", "2", "--out", str(tmp_path / "w")])
    assert json.loads((tmp_path / "w" / generate.FACTS).read_text()) == {"world": "ctr_like", "rows": 40, "seed": 2}
    assert len(read_world(tmp_path / "w")["row_id"]) == 40


def test_rerun_replaces_the_world(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "w"
    (tmp_path / ".w.killed").mkdir()
    generate.run(spark, "cvr_like", 300, 1, path)
    generate.run(spark, "cvr_like", 40, 2, path)
    assert read_world(path)["row_id"].tolist() == list(range(40))
    assert list_hidden(tmp_path) == []


def test_failed_write_leaves_what_was_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w"
    generate.run(spark, "cvr_like", 50, 1, path)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(io, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        generate.run(spark, "cvr_like", 70, 1, path)
    with pytest.raises(OSError, match="disk full"):
        generate.run(spark, "cvr_like", 70, 1, tmp_path / "other")
    assert len(read_world(path)["row_id"]) == 50
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["w"]


def test_what_is_no_world_is_never_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(ValueError, match="is no generated world, so it is not replaced; give another path"):
        generate.run(spark, "cvr_like", 10, 1, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "three years of work"


def test_wrong_arguments_are_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnknownWorld, match="did you mean cvr_like"):
        generate.run(spark, "cvrlike", 10, 1, tmp_path / "w")
    with pytest.raises(ValueError, match="rows 0: a world needs at least one row"):
        generate.run(spark, "cvr_like", 0, 1, tmp_path / "w")
    with pytest.raises(ValueError, match="seed -3 is negative"):
        generate.run(spark, "cvr_like", 10, -3, tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WORLDS)
def test_configuration_of_a_world_names_it(name: str) -> None:
    config = read_config(CONFIGS / f"{name}.yaml")
    assert (config.name, config.input.path) == (name, f"runs/worlds/{name}-2000000-1")
    assert {config.input.label, config.input.score, *config.features.names, *config.fields} <= set(
        WORLD_ROWS.fieldNames()
    )


def test_generated_world_is_good_input_and_new_values_are_in_test_only(spark: SparkSession, tmp_path: Path) -> None:
    generate.run(spark, "cvr_like", 4_000, 1, tmp_path / "w")
    config: RunConfig = read_config(
        CONFIGS / "cvr_like.yaml", (f"input.path={tmp_path / 'w'}", f"runs_dir={tmp_path / 'runs'}")
    )
    prepare_samples.run(spark, config)
    samples = io.read_table(spark, config, "samples", schemas.samples(config.fields))
    assert samples.count() == 4_000
    n_by_split = {row.split: row["count"] for row in samples.groupBy("split").count().collect()}
    assert {split: round(n / 4_000, 1) for split, n in n_by_split.items()} == {"train": 0.6, "dev": 0.2, "test": 0.2}
    world = read_world(tmp_path / "w")
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES).collect()
    known = {row.field_value for row in values if row.field_value_id > 0}
    assert known
    assert world["is_new"].any()
    assert not known & set(world["field_value"][world["is_new"]])
