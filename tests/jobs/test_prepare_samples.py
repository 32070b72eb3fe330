"""The raw table becomes samples, field values, encodings and rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from jobs import prepare_samples
from tests.assert_table import collect_rows
from tests.small_runs import draw_world, make_config, write_input

N_ROWS = 800
FIELDS = ["shop", "town"]
CHANGES: dict[str, Any] = {
    "fields": FIELDS,
    "input": {"weight": "w", "date": "day", "row_key": "key", "row_filter": "price > 25", "truth": "score"},
    "split": {"by": "date"},
    "features": {"numeric": {"price": "price", "taste": "taste"}, "categorical": {"device": "device"}},
    "predictor": {"features": ["price"]},
}


@pytest.fixture(scope="module")
def world() -> dict[str, list[Any]]:
    """Every row once; the device is unknown in some rows, the last day has a device and a shop of its own."""
    columns = draw_world(N_ROWS, seed=2)
    for i in range(0, N_ROWS, 50):
        columns["device"][i] = None
        columns["price"][i + 1] = None  # fails the row filter
        columns["taste"][i + 2] = [None, 0.5]
    columns["shop"][-1], columns["device"][-1], columns["price"][-1] = "opened today", "glasses", 40.0
    return columns


@pytest.fixture(scope="module")
def config(spark: SparkSession, world: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("prepare")
    write_input(folder, world, n_files=2)
    config = make_config(folder, CHANGES)
    prepare_samples.run(spark, config)
    return config


@pytest.fixture(scope="module")
def samples(spark: SparkSession, config: RunConfig) -> dict[str, dict[str, Any]]:
    """The table's rows by the user's own key."""
    rows = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    return {row["row_key"]: row for row in rows}


def kept(world: dict[str, list[Any]]) -> list[int]:
    return [i for i, price in enumerate(world["price"]) if price is not None and price > 25]


def test_an_input_that_changes_between_two_readings_is_refused(
    spark: SparkSession, world: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path, world)
    count = prepare_samples._count_input
    monkeypatch.setattr(prepare_samples, "_count_input", lambda *given: count(*given) | {"good_fingerprint": "1"})
    n = len(kept(world))
    with pytest.raises(
        io.InputError, match=rf"input: {n} good rows when counted, {n} when read again, and not the same"
    ):
        prepare_samples.run(spark, make_config(tmp_path, CHANGES))
    assert not (tmp_path / "runs" / "small" / "tables" / "samples").exists()


def test_no_dictionary_is_built_for_what_hardly_repeats(config: RunConfig) -> None:
    used = {}
    for file in io.table_path(config, "samples").rglob("*.parquet"):
        group = pq.ParquetFile(file).metadata.row_group(0)
        for column in (group.column(i) for i in range(group.num_columns)):
            used.setdefault(column.path_in_schema, set()).update(column.encodings)
    with_dictionary = {name for name, names in used.items() if names & {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}}
    plain = {"sample_id", "true_probability", "predictor_features.list.element", "auxiliary_features.list.element"}
    assert plain <= set(used) and not plain & with_dictionary
    assert {"label", "date", "field_value_id_shop", "auxiliary_category_ids.list.element"} <= with_dictionary


def test_every_row_that_meets_the_filter_is_there_once(samples: dict, world: dict) -> None:
    assert sorted(samples) == sorted(f"row {i}" for i in kept(world))
    assert len({row["sample_id"] for row in samples.values()}) == len(samples)


def test_plain_columns_are_the_inputs(samples: dict, world: dict) -> None:
    for i in kept(world):
        row, score = samples[f"row {i}"], world["score"][i]
        assert (row["label"], row["weight"], row["date"]) == (world["label"][i], world["w"][i], world["day"][i])
        assert row["true_probability"] == score
        assert row["own_logit"] == pytest.approx(np.log(score / (1 - score)), rel=1e-5, abs=1e-6)


def test_days_are_dealt_whole_and_in_order(samples: dict) -> None:
    last = {}
    for row in sorted(samples.values(), key=lambda row: row["date"]):
        last.setdefault(row["date"], set()).add(row["split"])
    assert all(len(splits) == 1 for splits in last.values())
    order = [next(iter(splits)) for splits in last.values()]
    assert order == sorted(order, key=("train", "dev", "test").index)
    assert set(order) == {"train", "dev", "test"}


def test_ids_follow_the_frequency_in_train_and_dev(
    spark: SparkSession, config: RunConfig, samples: dict, world: dict
) -> None:
    fit = [i for i in kept(world) if samples[f"row {i}"]["split"] != "test"]
    values = collect_rows(io.read_table(spark, config, "field_values", schemas.FIELD_VALUES))
    for field in FIELDS:
        counts: dict[str, list[int]] = {}
        for i in fit:
            counts.setdefault(world[field][i], []).append(world["label"][i])
        order = sorted(counts, key=lambda value: (-len(counts[value]), value))
        expected = [(None, "unseen", 0, 0, 0)]
        expected += [(v, "value", k, len(counts[v]), sum(counts[v])) for k, v in enumerate(order, start=1)]
        names = ("field_value", "value_kind", "field_value_id", "n_samples", "n_responses")
        found = [tuple(row[name] for name in names) for row in values if row["field"] == field]
        assert sorted(found, key=lambda row: row[2]) == expected
        ids = {value: k for k, value in enumerate(order, start=1)}
        assert all(samples[f"row {i}"][f"field_value_id_{field}"] == ids.get(world[field][i], 0) for i in kept(world))


def test_features_are_standardised_on_train_and_dev_only(samples: dict, world: dict) -> None:
    fit = [i for i in kept(world) if samples[f"row {i}"]["split"] != "test"]
    columns = np.array(
        [[world["price"][i], *(np.nan if x is None else x for x in world["taste"][i])] for i in range(N_ROWS)], float
    )
    weight = np.where(np.isnan(columns[fit]), 0.0, np.array([samples[f"row {i}"]["weight"] for i in fit])[:, None])
    values = np.nan_to_num(columns[fit])
    mean = (weight * values).sum(axis=0) / weight.sum(axis=0)
    scale = np.sqrt((weight * (values - mean) ** 2).sum(axis=0) / weight.sum(axis=0))
    encoded = np.nan_to_num((columns - mean) / scale)
    for i in kept(world):
        row = samples[f"row {i}"]
        np.testing.assert_allclose(row["auxiliary_features"], encoded[i], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(row["predictor_features"], encoded[i, :1], rtol=1e-4, atol=1e-4)
        assert len(row["auxiliary_category_ids"]) == 1 and row["predictor_category_ids"] == []
    assert samples[f"row {N_ROWS - 1}"]["auxiliary_category_ids"] == [0]  # glasses: only in test


def test_manifest_counts_everything_on_the_way(config: RunConfig, samples: dict, world: dict) -> None:
    manifest = io.read_manifest(config, "samples")
    n_kept = len(kept(world))
    assert (manifest["n_input"], manifest["n_filtered_out"], manifest["n_good"]) == (N_ROWS, N_ROWS - n_kept, n_kept)
    assert manifest["rows"] == n_kept
    assert manifest["rejected"] == {"n_rejected": 0, "reasons": {}}
    fit = [i for i in kept(world) if samples[f"row {i}"]["split"] != "test"]
    assert manifest["n_field_values"] == {f: len({world[f][i] for i in fit}) for f in FIELDS}
    assert manifest["imputed_nulls"] == {"taste[0]": sum(world["taste"][i][0] is None for i in kept(world))}
    assert (manifest["n_predictor_features"], manifest["n_auxiliary_features"]) == (1, 3)
    # phone, desk, watch, null, and one for unseen categories
    assert (manifest["predictor_category_counts"], manifest["auxiliary_category_counts"]) == ([], [5])
    for split in ("train", "dev", "test"):
        mine = [row for row in samples.values() if row["split"] == split]
        assert manifest["splits"][split] == {
            "n_samples": len(mine),
            "n_responses": sum(row["label"] for row in mine),
            "n_unseen": {f: sum(row[f"field_value_id_{f}"] == 0 for row in mine) for f in FIELDS},
        }
    assert manifest["splits"]["test"]["n_unseen"] == {"shop": 1, "town": 0}


def test_encodings_table_reproduces_the_features(
    spark: SparkSession, config: RunConfig, samples: dict, world: dict
) -> None:
    rows = collect_rows(io.read_table(spark, config, "feature_encodings", schemas.FEATURE_ENCODINGS))
    price = next(row for row in rows if row["feature"] == "price")
    categories = {row["category"]: row["category_id"] for row in rows if row["feature"] == "device"}
    assert set(categories) == {None, "phone", "desk", "watch"}
    for i in kept(world)[:100]:
        row = samples[f"row {i}"]
        expected = (world["price"][i] - price["mean"]) / price["scale"]
        assert row["auxiliary_features"][0] == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert row["auxiliary_category_ids"] == [categories.get(world["device"][i], 0)]


def test_repeated_rows_are_dealt_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    # 300 rows, each of 3 distinct ones a hundred times: a split by the row's content would give one split to each
    columns = {name: values[:3] * 100 for name, values in draw_world(100).items()}
    write_input(tmp_path, columns, n_files=3)
    config = make_config(tmp_path, {"input": {"row_key": "key"}})
    prepare_samples.run(spark, config)
    rows = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    assert len(rows) == len({row["sample_id"] for row in rows}) == 300
    for key in {row["row_key"] for row in rows}:
        splits = [row["split"] for row in rows if row["row_key"] == key]
        for split, share in (("train", 0.6), ("dev", 0.2), ("test", 0.2)):  # within five standard deviations
            assert abs(splits.count(split) - 100 * share) < 5 * (100 * share * (1 - share)) ** 0.5


def test_own_split_column_is_taken_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_world(60) | {"part": (["train"] * 3 + ["dev", "test"]) * 12}
    write_input(tmp_path, columns)
    config = make_config(tmp_path, {"input": {"row_key": "key"}, "split": {"by": "column", "column": "part"}})
    prepare_samples.run(spark, config)
    rows = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    found = {row["row_key"]: row["split"] for row in rows}
    assert found == dict(zip(columns["key"], columns["part"], strict=True))


def test_values_that_only_the_future_has_are_unseen(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_world(300)
    write_input(tmp_path, columns)
    changes = {"input": {"row_key": "key"}, "split": {"test_only": "shop IN ('shop 0', 'shop 5') AND price > -1"}}
    config = make_config(tmp_path, changes)
    prepare_samples.run(spark, config)
    rows = collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields)))
    future = {k for k, shop in zip(columns["key"], columns["shop"], strict=True) if shop in ("shop 0", "shop 5")}
    assert {row["row_key"] for row in rows if row["field_value_id_shop"] == 0} >= future
    assert all(row["split"] == "test" for row in rows if row["row_key"] in future)
    assert {row["split"] for row in rows if row["row_key"] not in future} == {"train", "dev", "test"}
    assert io.read_manifest(config, "samples")["splits"]["test"]["n_unseen"]["shop"] >= len(future) > 50


def test_nothing_left_to_train_on_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path, draw_world(60))
    config = make_config(tmp_path, {"split": {"test_only": "price > -1"}})
    with pytest.raises(io.InputError, match=r"split train, dev: no rows .*split\.test_only"):
        prepare_samples.run(spark, config)


def test_ids_too_many_to_send_around_are_joined_all_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path, draw_world(200))
    config = make_config(tmp_path)
    tables = []
    for limit in (prepare_samples.BROADCAST_LIMIT, 0):
        monkeypatch.setattr(prepare_samples, "BROADCAST_LIMIT", limit)
        prepare_samples.run(spark, config)
        table = io.read_table(spark, config, "samples", schemas.samples(config.fields))
        tables.append(collect_rows(table, ["sample_id"]))
    assert tables[0] == tables[1]


def test_a_feature_unlike_any_of_train_and_dev_stays_finite(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_world(60) | {"part": (["train"] * 3 + ["dev", "test"]) * 12}
    columns["price"] = [
        1e300 if part == "test" else price for part, price in zip(columns["part"], columns["price"], strict=True)
    ]
    write_input(tmp_path, columns)
    changes = {"split": {"by": "column", "column": "part"}, "features": {"numeric": ["price"]}}
    config = make_config(tmp_path, changes)
    prepare_samples.run(spark, config)
    for row in collect_rows(io.read_table(spark, config, "samples", schemas.samples(config.fields))):
        (value,) = row["auxiliary_features"]
        assert value == 1e4 if row["split"] == "test" else abs(value) < 10


@pytest.mark.parametrize(("weight", "warned"), [("0.001", True), ("0.5", False)])
def test_weights_that_are_no_counts_are_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, weight: str, warned: bool
) -> None:
    write_input(tmp_path, draw_world(60))
    prepare_samples.run(spark, make_config(tmp_path, {"input": {"weight": weight}}))
    assert ("a weight is the number of rows that a row stands for" in caplog.text) == warned


def test_array_lengths_are_those_of_the_filtered_rows(spark: SparkSession, tmp_path: Path) -> None:
    # on the rows that the filter takes, the feature's expression would raise
    write_input(tmp_path, draw_world(60) | {"k": [0, 1] * 30})
    changes = {"input": {"row_filter": "k > 0"}, "features": {"numeric": {"ratio": "array(price / k, price)"}}}
    config = make_config(tmp_path, changes)
    prepare_samples.run(spark, config)
    assert io.read_manifest(config, "samples")["n_auxiliary_features"] == 2
