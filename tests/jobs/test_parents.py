"""A run with `parent`: the table of parents, and the calibrator that leans on them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.field_part import RobustSwitches, fit_field_part
from adacalib.cells.functions import interpolate
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.config import RunConfig, parse_config
from adacalib.manifest import MixedTables, TableMissing
from adacalib.model.calibrator import functions_of
from adacalib.model.calibrator_training import _read_parents, train_calibrator
from adacalib.model.unified import load_model
from jobs import prepare_samples
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import draw_world, make_config, merge, run_stages, write_input

N_ROWS = 1500
CHANGES: dict[str, Any] = {
    "parent": "family",
    "input": {"row_key": "key", "weight": "w"},
    "calibrator": {"re_level": False},
}


@pytest.fixture(scope="module")
def world() -> dict[str, list[Any]]:
    """Shops of three families, one responds more; some rows name another one, some none; one shop has none at all."""
    columns = draw_world(N_ROWS, seed=9)
    number = [int(shop.split()[1]) for shop in columns["shop"]]
    family = ["north", "east", "west"]
    columns["family"] = [
        None if k == 5 or i % 10 == 0 else family[(k + (i % 7 == 0)) % 3] for i, k in enumerate(number)
    ]
    # every other row of shops 2, 5, 8 … responds, whatever the score says
    columns["label"] = [
        1 if k % 3 == 2 and i % 2 else y for i, (k, y) in enumerate(zip(number, columns["label"], strict=True))
    ]
    columns["shop"] = [None if k == 4 else shop for k, shop in zip(number, columns["shop"], strict=True)]
    return columns


@pytest.fixture(scope="module")
def config(spark: SparkSession, world: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("parents")
    write_input(folder, world, n_files=2)
    return run_stages(spark, make_config(folder, CHANGES), until="train_calibrator")


def read_ids(spark: SparkSession, config: RunConfig) -> dict[str | None, int]:
    rows = collect_rows(io.read_table(spark, config, "field_values", schemas.FIELD_VALUES))
    return {row["field_value"]: row["field_value_id"] for row in rows if row["value_kind"] != "unseen"}


def test_table_is_a_count_over_train_and_dev(spark: SparkSession, config: RunConfig, world: dict) -> None:
    samples = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    split = {row["row_key"]: row["split"] for row in samples}
    fit = [i for i, key in enumerate(world["key"]) if split[key] != "test"]
    ids = read_ids(spark, config)
    weights: dict[Any, Counter[str]] = {shop: Counter() for shop in ids}
    for i in fit:
        if world["family"][i] is not None:
            weights[world["shop"][i]][world["family"][i]] += world["w"][i]
    chosen = {shop: min(own, key=lambda name: (-own[name], name)) for shop, own in weights.items() if own}
    numbers = {name: k for k, name in enumerate(sorted(set(chosen.values())), start=1)}
    expected = [
        {
            "field": "shop",
            "field_value_id": field_value_id,
            "parent": chosen.get(shop),
            "parent_id": numbers.get(chosen.get(shop, ""), 0),
            "n_parents": len(weights[shop]),
        }
        for shop, field_value_id in ids.items()
    ]
    assert {row["parent_id"] for row in expected} == {0, 1, 2, 3} and max(row["n_parents"] for row in expected) > 1
    table = io.read_table(spark, config, "field_value_parents", schemas.FIELD_VALUE_PARENTS)
    assert_table(table, expected, ["field_value_id"])
    generation = io.read_manifest(config, "samples")["generation"]
    assert io.read_manifest(config, "field_value_parents")["generation"] == generation


def test_calibrator_is_fitted_with_these_parents(spark: SparkSession, config: RunConfig) -> None:
    n_values = io.read_manifest(config, "samples")["n_field_values"]["shop"] + 1
    parents = collect_rows(io.read_table(spark, config, "field_value_parents", schemas.FIELD_VALUE_PARENTS))
    parent_V = np.zeros(n_values, np.int64)
    for row in parents:
        parent_V[row["field_value_id"]] = row["parent_id"]
    found_V = _read_parents(config, n_values)
    assert found_V is not None and found_V.tolist() == parent_V.tolist()
    table = pq.read_table(config.run_dir / "tables" / "logit_cells", partitioning=None)
    columns = {
        n: table[n].to_numpy() for n in table.column_names if n not in ("field", "field_value", "value_kind", "date")
    }
    bounds = compute_bin_bounds(cells_from_columns(columns, n_values), 20)
    fits = {
        name: fit_field_part(columns, n_values, bounds, RobustSwitches(), config.seed, own)
        for name, own in {"with": parent_V, "without": None}.items()
    }
    model, artifact = load_model(config.run_dir / "unified", "shop")
    served = functions_of(model.calibrator)
    assert artifact.documents["training"]["tau_parent"] == fits["with"].diagnostics["tau_parent"] > 0
    np.testing.assert_allclose(served.knots_RJ, fits["with"].functions.knots_RJ, atol=1e-9)
    # these shops have enough rows to know their own levels, so that parents move them by little, but they do
    assert np.abs(served.knots_RJ - fits["without"].functions.knots_RJ).max() > 1e-5


def test_an_unseen_value_is_served_by_its_parents_level(spark: SparkSession, tmp_path: Path, world: dict) -> None:
    # shops 7 (of family east), 5 (of none) and 9, in test alone; rows of shop 9 name a family that no other shop has
    families = [
        "south" if shop == "shop 9" else name for shop, name in zip(world["shop"], world["family"], strict=True)
    ]
    write_input(tmp_path, world | {"family": families})
    split = {"split": {"test_only": "shop in ('shop 5', 'shop 7', 'shop 9')"}}
    config = run_stages(spark, make_config(tmp_path, CHANGES | split), until="calibrate_samples")
    parents = collect_rows(io.read_table(spark, config, "field_value_parents", schemas.FIELD_VALUE_PARENTS))
    number = {row["parent"]: row["parent_id"] for row in parents}
    assert set(number) == {"north", "east", "west"}
    of_key = dict(zip(world["key"], families, strict=True))
    samples = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    assert [row["parent_id"] for row in samples] == [number.get(of_key[row["row_key"]], 0) for row in samples]

    calibrator = load_model(config.run_dir / "unified", "shop")[0].calibrator
    assert calibrator is not None and calibrator.parent_level_P is not None
    level_P = calibrator.parent_level_P.numpy()
    assert len(level_P) == 4 and level_P[0] == 0 and np.ptp(level_P) > 0.3
    rows = collect_rows(io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields)))
    ids = np.array([row["field_value_id_shop"] for row in rows])
    logit = np.array([row["uncalibrated_logit"] for row in rows], np.float64)
    parent = np.array([number.get(of_key[row["row_key"]], 0) for row in rows])
    assert set(parent[ids == 0]) == {0, number["east"], number["west"]}
    expected = interpolate(functions_of(calibrator), ids, logit) + np.where(ids == 0, level_P[parent], 0.0)
    np.testing.assert_allclose([row["calibrated_logit"] for row in rows], expected, atol=1e-9)


def test_a_run_without_parents_has_no_table_and_reads_none(spark: SparkSession, tmp_path: Path, world: dict) -> None:
    write_input(tmp_path, world)
    config = run_stages(spark, make_config(tmp_path, CHANGES | {"parent": None}), until="train_calibrator")
    assert not io.table_path(config, "field_value_parents").exists()
    assert _read_parents(config, 13) is None
    told = load_model(config.run_dir / "unified", "shop")[1].documents["training"]
    assert told["tau_parent"] is None


def copy_run(config: RunConfig, folder: Path, changes: dict[str, Any] | None = None) -> RunConfig:
    copied = parse_config(merge(config.model_dump(mode="json"), {"runs_dir": str(folder), **(changes or {})}))
    shutil.copytree(config.run_dir, copied.run_dir)
    return copied


def test_parents_can_be_switched_off(config: RunConfig) -> None:
    off = parse_config(merge(config.model_dump(mode="json"), {"calibrator": {"value_parent": False}}))
    assert _read_parents(config, 13) is not None and _read_parents(off, 13) is None


def test_a_missing_or_foreign_table_of_parents_is_refused(config: RunConfig, tmp_path: Path) -> None:
    missing = copy_run(config, tmp_path / "missing")
    shutil.rmtree(io.table_path(missing, "field_value_parents"))
    with pytest.raises(TableMissing, match="field_value_parents is not there; run `adacalib prepare_samples`"):
        train_calibrator(missing)
    foreign = copy_run(config, tmp_path / "foreign")
    path = io.table_path(foreign, "field_value_parents") / "_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"generation": "another"}))
    with pytest.raises(MixedTables, match=r"field_value_parents from another.*run from prepare_samples again"):
        train_calibrator(foreign)
    other = copy_run(config, tmp_path / "other", {"parent": "town"})
    with pytest.raises(MixedTables, match="another input, fields, features, split or seed"):
        train_calibrator(other)


@pytest.mark.parametrize(
    ("parent", "message"),
    [("famly", r"parent: 'famly': .*famly"), ("taste", "parent: 'taste' is array<double>, expected a plain value")],
)
def test_an_impossible_parent_is_a_message(spark: SparkSession, tmp_path: Path, parent: str, message: str) -> None:
    write_input(tmp_path, draw_world(60))
    with pytest.raises(io.InputError, match=message):
        prepare_samples.run(spark, make_config(tmp_path, {"parent": parent}))


def test_parent_may_be_an_expression_of_any_plain_type(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path, draw_world(300))
    config = make_config(tmp_path, {"parent": "int(substring(shop, 6)) % 2 = 0"})
    prepare_samples.run(spark, config)
    rows = collect_rows(io.read_table(spark, config, "field_value_parents", schemas.FIELD_VALUE_PARENTS))
    ids = read_ids(spark, config)
    found = {row["field_value_id"]: (row["parent"], row["parent_id"], row["n_parents"]) for row in rows}
    for shop, field_value_id in ids.items():
        is_even = int(str(shop).split()[1]) % 2 == 0
        assert found[field_value_id] == (("true", 2, 1) if is_even else ("false", 1, 1))
