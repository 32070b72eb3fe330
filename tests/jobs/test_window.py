"""Runs with a window: days are stored, a day's run is fitted on them, and reads no rows but its own."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import ConfigError, RunConfig
from adacalib.manifest import MixedTables
from adacalib.window import WindowError
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import FIRST_DAY, draw_world, make_config, merge, run_stage, run_stages, write_input

N_ROWS = 4000
CELL_KEY = ["date", "field", "field_value", "value_kind", "cell"]
CHANGES: dict[str, Any] = {
    "fields": ["shop", "town"],
    "input": {"date": "day", "row_key": "key"},
    "split": {"by": "date", "test_days": 1},
    "bins": {"n_bins_candidates": [5]},
}


def configure(folder: Path, days: range, changes: dict[str, Any] | None = None) -> RunConfig:
    """A run over some days of the world, whose window of six days lies in folder/window."""
    name = f"days-{days.start}-{days.stop - 1}"
    own = {"name": name, "input": {"path": str(folder / name / "input")}, "window": {"path": str(folder / "window")}}
    config = make_config(folder, merge(merge(CHANGES, merge(own, {"window": {"days": 6}})), changes or {}))
    return config


def write_days(folder: Path, days: range, world: dict[str, list[Any]]) -> None:
    kept = [i for i, day in enumerate(world["day"]) if (day - FIRST_DAY).days in days]
    path = folder / f"days-{days.start}-{days.stop - 1}"
    if not path.exists():
        write_input(path, {name: [values[i] for i in kept] for name, values in world.items()})


@pytest.fixture(scope="module")
def world() -> dict[str, list[Any]]:
    """Ten days; `shop 11` is on the last of days 0 to 7 only, so that its test day brings a new value."""
    world = draw_world(N_ROWS)
    late = [(day - FIRST_DAY).days >= 6 for day in world["day"]]
    shops = [
        "shop 0" if shop == "shop 11" and not is_late else shop
        for shop, is_late in zip(world["shop"], late, strict=True)
    ]
    return world | {"shop": shops}


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, world: dict[str, list[Any]]) -> Path:
    """Days 0 to 6 in one run, whose test day is the sixth, then 7 by itself and to the end."""
    folder = tmp_path_factory.mktemp("window")
    for days, until in ((range(7), "build_logit_cells"), (range(7, 8), "evaluate")):
        write_days(folder, days, world)
        run_stages(spark, configure(folder, days), until=until)
    return folder


def read_cells(spark: SparkSession, config: RunConfig) -> list[dict[str, Any]]:
    table = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    return collect_rows(table.drop("field_value_id"), CELL_KEY)


def test_a_days_run_is_the_run_over_all_days(
    spark: SparkSession, folder: Path, world: dict[str, list[Any]], tmp_path: Path
) -> None:
    day = configure(folder, range(7, 8))
    write_days(tmp_path, range(1, 8), world)
    whole = run_stages(spark, configure(tmp_path, range(1, 8), {"window": None}))
    assert_table(read_cells(spark, day), read_cells(spark, whole), CELL_KEY)
    samples = io.read_manifest(day, "samples")
    assert samples["window"] | {"digest": ""} == {
        "first": str(FIRST_DAY + timedelta(days=1)),
        "last": str(FIRST_DAY + timedelta(days=6)),
        "own_days": 0,
        "stored_days": 6,
        "missing_days": [],
        "digest": "",
    }
    # one day was read, and calibrated as by the run that read seven
    assert set(samples["splits"]) == {"test"} and samples["n_good"] < N_ROWS / 5
    scores = []
    for config in (day, whole):
        table = io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields))
        scores.append({row["row_key"]: row["calibrated_logit"] for row in collect_rows(table.filter("split = 'test'"))})
    assert scores[0].keys() == scores[1].keys()
    np.testing.assert_allclose(list(scores[0].values()), [scores[1][key] for key in scores[0]], atol=1e-9)
    metrics = [json.loads((config.run_dir / "metrics.json").read_text()) for config in (day, whole)]
    for metric in ("field_rce", "log_loss", "field_auc"):
        ours, theirs = (found["methods"]["adacalib"][metric] for found in metrics)
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_a_new_value_of_the_test_day_is_stored_by_its_name(spark: SparkSession, folder: Path) -> None:
    config = configure(folder, range(7))
    values = collect_rows(io.read_table(spark, config, "field_values", schemas.FIELD_VALUES))
    new = next(row for row in values if row["field_value"] == "shop 11")
    assert new["n_samples"] == 0 and new["field_value_id"] == max(
        r["field_value_id"] for r in values if r["field"] == "shop"
    )
    unseen = io.read_manifest(config, "samples")["splits"]["test"]["n_unseen"]
    stored = io.read_folders(spark, [folder / "window" / str(FIRST_DAY + timedelta(days=6))], schemas.DAY_CELLS)
    found = {
        row["field_value"]: row["n_samples"]
        for row in stored.groupBy("field_value").sum("n_samples").toDF("field_value", "n_samples").collect()
    }
    assert found["shop 11"] == unseen["shop"] > 0


def test_a_corrected_day_replaces_its_own_and_no_other(
    spark: SparkSession, folder: Path, world: dict[str, list[Any]], tmp_path: Path
) -> None:
    window = folder / "window"
    before = {path.name: json.loads((path / "_manifest.json").read_text()) for path in window.iterdir()}
    prepared = configure(folder, range(7, 8))
    corrected = world | {
        "label": [1 - y if (d - FIRST_DAY).days == 6 else y for y, d in zip(world["label"], world["day"], strict=True)]
    }
    write_days(tmp_path, range(6, 7), corrected)
    late = configure(tmp_path, range(6, 7), {"window": {"path": str(window)}})
    run_stages(spark, late, until="build_logit_cells")
    after = {path.name: json.loads((path / "_manifest.json").read_text()) for path in window.iterdir()}
    changed = str(FIRST_DAY + timedelta(days=6))
    assert {name for name in after if after[name] != before[name]} == {changed} and after.keys() == before.keys()
    assert after[changed]["n_samples"] == before[changed]["n_samples"]
    # the run of the day after was prepared for the day as it was
    with pytest.raises(
        MixedTables, match="added or replaced since the samples were prepared; run from prepare_samples"
    ):
        run_stage(spark, prepared, "build_logit_cells")
    run_stage(spark, configure(folder, range(7)), "build_logit_cells")
    assert json.loads((window / changed / "_manifest.json").read_text()) == before[changed]
    run_stage(spark, prepared, "build_logit_cells")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input": {"score_version": "next"}},
            r"6 stored day\(s\) of another model .* than next: 2024-01-02 \(own-scores",
        ),
        ({"input": {"label": "1 - label"}}, r"6 stored day\(s\) of another label, score or field"),
        ({"window": {"path": "elsewhere"}}, "no day from 2024-01-02 to 2024-01-07 is stored in .*elsewhere"),
    ],
)
def test_days_that_do_not_fit_are_refused(
    spark: SparkSession, folder: Path, changes: dict[str, Any], message: str
) -> None:
    config = configure(folder, range(7, 8), merge({"name": "other"}, changes))
    with pytest.raises(WindowError, match=message):
        run_stage(spark, config, "prepare_samples")


def test_missing_days_are_told(spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(folder, range(7, 8), {"name": "wide", "window": {"days": 9}})
    run_stage(spark, config, "prepare_samples")
    assert io.read_manifest(config, "samples")["window"]["missing_days"] == ["2023-12-30", "2023-12-31"]
    assert "window: 2 of 9 days are not there (2023-12-30, 2023-12-31)" in caplog.text


def test_what_a_window_cannot_serve_is_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(
            tmp_path,
            {
                "window": {"path": "w"},
                "parent": "town",
                "features": {"numeric": ["price"]},
                "split": {"test_only": "shop = 'shop 1'"},
            },
        )
    for part in ("split.by: date", "no split.test_only", "calibrator.auxiliary.enabled: false", "no parent"):
        assert f"window: needs {part}" in str(caught.value)
