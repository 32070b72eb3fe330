"""Bad input: what is set aside and counted, what stops the run and with which message, what must go through."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.io import InputError, unreadable_input
from jobs import prepare_samples
from tests.assert_table import collect_rows
from tests.small_runs import draw_world, make_config, run_stages, write_input

N_GOOD = 300
CHANGES: dict[str, Any] = {
    "input": {"weight": "w", "row_key": "key"},
    "features": {"numeric": ["taste"]},
    "split": {"by": "column", "column": "part"},
}
NEITHER = "label is not 0 or 1"
WEIGHT = "weight is not a positive number"
LENGTH = "feature taste has another length than 2"

# what is changed in a good row → the reason that it gets; the label is a double here, so that it can be wrong
FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"label": 2.0}, NEITHER),
    ({"label": 0.5}, NEITHER),
    ({"label": None}, "label is null"),
    ({"score": math.nan}, "score is NaN"),
    ({"score": math.inf}, "score is infinite"),
    ({"score": -math.inf}, "score is infinite"),
    ({"score": 1.5}, "score is outside [0, 1]"),
    ({"score": -0.1}, "score is outside [0, 1]"),
    ({"score": None}, "score is null"),
    ({"w": -1.0}, WEIGHT),
    ({"w": 0.0}, WEIGHT),
    ({"taste": [1.0]}, LENGTH),
    ({"taste": [1.0, 2.0, 3.0]}, LENGTH),
    ({"taste": None}, LENGTH),
    ({"label": 3.0, "w": 0.0}, f"{NEITHER}; {WEIGHT}"),
]
# odd, but welcome: (change, what the manifest counts)
ODD: list[dict[str, Any]] = [
    {"score": 0.0},
    {"score": 1.0},
    {"score": 1.0},
    {"shop": None},
    {"shop": None},
    {"shop": ""},
    {"shop": "only in test", "part": "test"},
]


def make_messy_table() -> dict[str, list[Any]]:
    """Good rows, then the odd ones, then the faulty ones."""
    columns = draw_world(N_GOOD + len(ODD) + len(FAULTY), seed=8)
    n_rows = len(columns["label"])
    columns["label"] = [float(y) for y in columns["label"]]
    columns["part"] = [("train", "train", "dev", "test")[i % 4] for i in range(n_rows)]
    for i, change in enumerate([*ODD, *(change for change, _ in FAULTY)], start=N_GOOD):
        columns["part"][i] = "train"
        for name, value in change.items():
            columns[name][i] = value
    return columns


@pytest.fixture(scope="module")
def messy(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The messy table with a share of faulty rows that the run allows."""
    folder = tmp_path_factory.mktemp("messy")
    write_input(folder, make_messy_table())
    config = make_config(folder, CHANGES | {"input": {**CHANGES["input"], "max_rejected_share": 0.2}})
    prepare_samples.run(spark, config)
    return config


@pytest.fixture(scope="module")
def accepted(spark: SparkSession, messy: RunConfig) -> dict[str, dict[str, Any]]:
    rows = collect_rows(io.read_table(spark, messy, "samples", schemas.samples(messy.fields)))
    return {row["row_key"]: row for row in rows}


def test_faulty_rows_lie_in_rejects_with_reason_and_row(spark: SparkSession, messy: RunConfig) -> None:
    rows = collect_rows(io.read_table(spark, messy, "rejects", schemas.REJECTS))
    found = {json.loads(row["row"])["key"]: row["reason"] for row in rows}
    assert found == {f"row {N_GOOD + len(ODD) + i}": reason for i, (_, reason) in enumerate(FAULTY)}
    assert all(row["n_rows"] == 1 for row in rows)


def test_reasons_are_counted_and_nothing_is_dropped_in_silence(messy: RunConfig, accepted: dict) -> None:
    manifest = io.read_manifest(messy, "samples")
    reasons: dict[str, int] = {}
    for _, reason in FAULTY:
        for part in reason.split("; "):
            reasons[part] = reasons.get(part, 0) + 1
    assert manifest["rejected"] == {"n_rejected": len(FAULTY), "reasons": reasons}
    assert manifest["n_input"] == manifest["n_good"] + len(FAULTY)
    assert sorted(accepted) == sorted(f"row {i}" for i in range(N_GOOD + len(ODD)))


def test_scores_of_0_and_1_are_clipped_and_counted(messy: RunConfig, accepted: dict) -> None:
    assert io.read_manifest(messy, "samples")["n_scores_clipped"] == 3
    limit = math.log((1 - 1e-7) / 1e-7)
    found = [accepted[f"row {N_GOOD + i}"]["own_logit"] for i in range(3)]
    assert found == pytest.approx([-limit, limit, limit], abs=1e-5)


def test_null_and_empty_are_values_of_their_own_and_counted(
    spark: SparkSession, messy: RunConfig, accepted: dict
) -> None:
    manifest = io.read_manifest(messy, "samples")
    assert (manifest["n_null_field_values"], manifest["n_empty_field_values"]) == ({"shop": 2}, {"shop": 1})
    values = collect_rows(io.read_table(spark, messy, "field_values", schemas.FIELD_VALUES))
    ids = {(row["field_value"], row["value_kind"]): row["field_value_id"] for row in values}
    null_id, empty_id = ids[None, "null"], ids["", "value"]
    assert [accepted[f"row {N_GOOD + i}"]["field_value_id_shop"] for i in (3, 4, 5)] == [null_id, null_id, empty_id]
    assert len({0, null_id, empty_id, ids[None, "unseen"]}) == 3


def test_value_only_in_test_has_id_0_and_is_counted(messy: RunConfig, accepted: dict) -> None:
    assert accepted[f"row {N_GOOD + 6}"]["field_value_id_shop"] == 0
    splits = io.read_manifest(messy, "samples")["splits"]
    assert [splits[name]["n_unseen"]["shop"] for name in ("train", "dev", "test")] == [0, 0, 1]


def test_above_the_allowed_share_the_run_stops_with_all_reasons(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path, make_messy_table())
    config = make_config(tmp_path, CHANGES)
    n_rows = N_GOOD + len(ODD) + len(FAULTY)
    message = (
        rf"input: 15 of {n_rows} rows are faulty \(4\.66%, allowed 1\.00%\):"
        r"(?s:.*)- feature taste has another length than 2: 3 rows"
        r"\n  - label is not 0 or 1: 3 rows\n  - label is null: 1 rows\n  - score is NaN: 1 rows"
        r"\n  - score is infinite: 2 rows\n  - score is null: 1 rows\n  - score is outside \[0, 1\]: 2 rows"
        r"\n  - weight is not a positive number: 3 rows\n"
        r"The rows are in .*rejects; repair them or raise input.max_rejected_share"
    )
    with pytest.raises(InputError, match=message):
        prepare_samples.run(spark, config)
    assert not io.table_path(config, "samples").exists()
    assert io.read_table(spark, config, "rejects", schemas.REJECTS).count() == len(FAULTY)


@pytest.mark.parametrize(("n_rejected", "stops"), [(100, False), (101, True)])
def test_the_allowed_share_itself_is_allowed(n_rejected: int, stops: bool) -> None:
    counts = {"n_good": 10_000 - n_rejected, "rejected": {"n_rejected": n_rejected, "reasons": {NEITHER: n_rejected}}}
    config = make_config(Path("nowhere"))
    if not stops:
        prepare_samples._refuse_bad_input(config, counts)
        return
    with pytest.raises(InputError, match=r"101 of 10,000 rows are faulty \(1\.01%, allowed 1\.00%\)"):
        prepare_samples._refuse_bad_input(config, counts)


def expect_refusal(
    spark: SparkSession, folder: Path, columns: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    write_input(folder, columns)
    with pytest.raises(InputError, match=message):
        prepare_samples.run(spark, make_config(folder, changes))


def test_missing_columns_and_wrong_types_stand_in_one_message(spark: SparkSession, tmp_path: Path) -> None:
    changes = {
        "input": {"label": "device", "weight": "weight"},
        "fields": ["shopp"],
        "features": {"numeric": ["town"]},
    }
    message = (
        r"input does not fit the configuration:"
        r"\n  - input.label: 'device' is string, expected a number or condition"
        r"\n  - input.weight: 'weight': .*`weight` cannot be resolved.*"
        r"\n  - fields: '`shopp`': .*Did you mean one of the following\? \[`shop`.*"
        r"\n  - features.numeric.town: 'town' is string, expected a number or an array of numbers"
        r"\n  columns there: label, score, shop, "
    )
    expect_refusal(spark, tmp_path, draw_world(20), changes, message)


def test_empty_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    empty = {name: pa.array(values).slice(0, 0) for name, values in draw_world(5).items()}
    expect_refusal(spark, tmp_path, empty, {}, r"input: no row is left of 0 \(row_filter took 0\); correct input.path")


def test_filter_that_takes_everything_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    changes = {"input": {"row_filter": "price < -1000"}}
    expect_refusal(spark, tmp_path, draw_world(30), changes, r"no row is left of 30 \(row_filter took 30\)")


def test_without_a_good_row_any_share_is_too_much(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_world(4) | {"score": [2.0] * 4}
    changes = {"input": {"max_rejected_share": 1.0}}
    expect_refusal(spark, tmp_path, columns, changes, r"4 of 4 rows are faulty \(100\.00%, allowed 100\.00%\)")


def test_more_values_than_cells_have_room_for_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path, draw_world(60))
    monkeypatch.setattr(prepare_samples, "MAX_FIELD_VALUE_ID", 2)
    with pytest.raises(
        InputError, match=r"field shop: \d+ values, and logit cells have room for 2; is it a key of rows"
    ):
        prepare_samples.run(spark, make_config(tmp_path))


def test_empty_split_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_world(30) | {"part": ["train"] * 30}
    changes = {"split": {"by": "column", "column": "part"}}
    message = r"split dev, test: no rows \(found {'train': 30}\); change split.by, its shares or split.test_only"
    expect_refusal(spark, tmp_path, columns, changes, message)


@pytest.mark.parametrize("n_files", [1, 2])
def test_truncated_file_is_named(spark: SparkSession, tmp_path: Path, n_files: int) -> None:
    folder = write_input(tmp_path, draw_world(200), n_files=n_files)
    damaged = folder / f"part-{n_files - 1}.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-200])
    message = rf"input: cannot be read as parquet: .*part-{n_files - 1}\.parquet.*Repair or remove that file"
    with pytest.raises(InputError, match=message):
        prepare_samples.run(spark, make_config(tmp_path))


def test_damaged_page_is_named_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_input(tmp_path, draw_world(200))
    file = folder / "part-0.parquet"
    start = pq.read_metadata(file).row_group(0).column(1).data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    file.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"input: cannot be read as parquet: .*part-0\.parquet"):
        prepare_samples.run(spark, make_config(tmp_path))


def test_files_of_another_type_are_named(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_input(tmp_path, draw_world(50))
    pq.write_table(pa.table(draw_world(50) | {"score": ["x"] * 50}), folder / "part-1.parquet")
    with pytest.raises(InputError, match=r"input: cannot be read as parquet: .*part-1\.parquet"):
        prepare_samples.run(spark, make_config(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"input": {"weight": "1 / (label - label)"}},
        {"input": {"row_key": "cast(1 / (label - label) AS string)"}},
        {"split": {"test_only": "1 / (label - label) > 0"}},
        {"features": {"categorical": {"device": "1 / (label - label)"}}},
        {"parent": "cast(1 / (label - label) AS string)"},
    ],
    ids=["weight", "row_key", "test_only", "categorical", "parent"],
)
def test_expression_that_fails_on_a_row_is_the_messages_subject(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any]
) -> None:
    message = r"an expression of the configuration fails on it: .*DIVIDE_BY_ZERO.*Correct the expression"
    expect_refusal(spark, tmp_path, draw_world(30), changes, message)


def test_a_reading_that_ends_for_want_of_memory_says_so(tmp_path: Path) -> None:
    error = RuntimeError("Job aborted: Lost task 0.0 in stage 7.0: java.lang.OutOfMemoryError: Java heap space")
    found = unreadable_input(make_config(tmp_path), error)
    assert "Spark ran out of memory while it read it; raise spark.driver.memory" in str(found)


def change_world(n_rows: int, **changes: Any) -> dict[str, list[Any]]:
    columns = draw_world(n_rows, seed=3)
    return columns | {name: function(columns) for name, function in changes.items()}


def relabel(columns: dict[str, list[Any]]) -> list[int]:
    """No positive in shop 1, only positives in shop 2."""
    return [{"shop 1": 0, "shop 2": 1}.get(z, y) for z, y in zip(columns["shop"], columns["label"], strict=True)]


POOR = {
    "one field value": change_world(400, shop=lambda columns: ["everywhere"] * 400),
    "no positive, only positives": change_world(400, label=relabel),
    "all scores equal": change_world(400, score=lambda columns: [0.3] * 400),
    "no positive at all": change_world(200, label=lambda columns: [0] * 200),
    "20 rows": draw_world(20, seed=3),
}


@pytest.mark.parametrize("name", POOR)
def test_poor_data_go_through_to_the_metrics(spark: SparkSession, tmp_path: Path, name: str) -> None:
    columns = POOR[name]
    write_input(tmp_path, columns)
    config = run_stages(spark, make_config(tmp_path, {"input": {"row_key": "key"}}))
    schema = schemas.calibrated_samples(config.fields)
    rows = collect_rows(io.read_table(spark, config, "calibrated_samples", schema))
    assert sorted(row["row_key"] for row in rows) == sorted(columns["key"])
    assert all(0 < row["calibrated_score"] < 1 for row in rows)
    methods = json.loads((config.run_dir / "metrics.json").read_text())["methods"]
    assert methods["adacalib"]["n_samples"] == sum(row["split"] == "test" for row in rows)
    assert math.isfinite(methods["adacalib"]["log_loss"])
    if name == "all scores equal":  # what is left to learn are the levels of the shops
        assert methods["uncalibrated"]["auc"] == 0.5
        assert methods["adacalib"]["log_loss"] < methods["uncalibrated"]["log_loss"]
    if name == "no positive at all":
        assert methods["adacalib"]["field_rce"] is None and methods["adacalib"]["auc"] is None
        assert max(row["calibrated_score"] for row in rows) < 0.05
    if name == "no positive, only positives":
        shops = dict(zip(columns["key"], columns["shop"], strict=True))
        mean = {
            shop: sum(r["calibrated_score"] for r in rows if shops[r["row_key"]] == shop)
            / sum(shops[r["row_key"]] == shop for r in rows)
            for shop in ("shop 1", "shop 2")
        }
        assert mean["shop 1"] < 0.1 and mean["shop 2"] > 0.9
