"""The whole chain, from the raw table to the metrics, through the jobs' own entry points."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import MixedTables, TableMissing
from adacalib.model.calibrator import Calibrator
from adacalib.model.calibrator_training import train_calibrator
from adacalib.model.score import build_scorer
from adacalib.model.unified import load_model
from adacalib.stats.scored_samples import score_batches
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import (
    DEVICE_EFFECT,
    draw_world,
    make_config,
    predictor_config,
    run_stage,
    run_stages,
    write_input,
)

pytestmark = pytest.mark.usefixtures("as_in_a_run")

N_ROWS = 5000
KEYED = {"input": {"row_key": "key"}}


@pytest.fixture(scope="module")
def world() -> dict[str, list[Any]]:
    return draw_world(N_ROWS)


def read_metrics(config: RunConfig) -> dict[str, Any]:
    return json.loads((config.run_dir / "metrics.json").read_text())


def read_calibrated(spark: SparkSession, config: RunConfig) -> list[dict[str, Any]]:
    schema = schemas.calibrated_samples(config.fields)
    return collect_rows(io.read_table(spark, config, "calibrated_samples", schema), ["sample_id"])


def assert_scored_once(spark: SparkSession, config: RunConfig, rows: list[dict[str, Any]]) -> None:
    """calibrated_samples has every accepted row exactly once, with the un-calibrated logit that it had."""
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    before = scored.drop("auxiliary_features", "auxiliary_category_ids", "parent_id")
    after = [{k: v for k, v in row.items() if not k.startswith("calibrated")} for row in rows]
    assert_table(after, before, ["sample_id"], rtol=1e-6, atol=1e-6)
    scores = np.array([row["calibrated_score"] for row in rows])
    logits = np.array([row["calibrated_logit"] for row in rows])
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits)), rtol=1e-12)
    assert np.all((scores > 0) & (scores < 1))


def assert_cells_add_up(spark: SparkSession, config: RunConfig) -> None:
    """Per field and value the sums of logit_cells are the sums over the rows of train and dev."""
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    fit, logit, weight = scored.filter("split != 'test'"), F.col("uncalibrated_logit").cast("double"), F.col("weight")
    for field in config.fields:
        found = cells.filter(F.col("field") == field).groupBy("field_value_id").agg(
            F.sum("n_samples").alias("n"), F.sum("n_responses").alias("y"), F.sum("sum_logit").alias("s"),
            F.sum("sum_weight").alias("w"), F.sum("sum_weight_responses").alias("wy"),
        )  # fmt: skip
        wanted = fit.groupBy(F.col(schemas.id_column(field)).alias("field_value_id")).agg(
            F.count("*").alias("n"), F.sum(F.col("label").cast("long")).alias("y"),
            F.sum(F.rint(logit * 2**20).cast("long")).alias("s"),
            F.sum(weight).alias("w"), F.sum(weight * F.col("label")).alias("wy"),
        )  # fmt: skip
        assert_table(found, wanted, ["field_value_id"], rtol=1e-12)


def assert_monotone(rows: list[dict[str, Any]], field: str) -> None:
    """Where nothing but the field value counts, a higher un-calibrated logit never has a lower score."""
    for value_id in {row[schemas.id_column(field)] for row in rows}:
        mine = sorted(
            (row["uncalibrated_logit"], row["calibrated_logit"])
            for row in rows
            if row[schemas.id_column(field)] == value_id
        )
        assert np.all(np.diff([calibrated for _, calibrated in mine]) >= -1e-12), value_id


@pytest.fixture(scope="module")
def predicted(spark: SparkSession, world: dict, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Robust mode with a trained predictor and the auxiliary network, each training in a rank of its own."""
    folder = tmp_path_factory.mktemp("predicted")
    write_input(folder, world, n_files=2)
    return run_stages(spark, predictor_config(folder, KEYED | {"fields": ["shop", "town"]}), in_process=False)


@pytest.fixture(scope="module")
def own_scores(spark: SparkSession, world: dict, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Own scores without features: no rows are streamed."""
    folder = tmp_path_factory.mktemp("own")
    write_input(folder, world)
    return run_stages(spark, make_config(folder, KEYED))


def test_predicted_run_repairs_the_field_effect(predicted: RunConfig) -> None:
    metrics = read_metrics(predicted)
    methods = metrics["methods"]
    assert metrics["field"] == "shop" and set(metrics["other_fields"]) == {"town"}
    assert set(methods) == {"uncalibrated", "isotonic", "isotonic_offset", "adacalib"}
    # the score does not know the shops, whose levels differ by more than 1 in log-odds
    assert methods["adacalib"]["field_rce"] < 0.4 * methods["uncalibrated"]["field_rce"]
    assert methods["adacalib"]["field_rce"] < 1.5 * methods["adacalib"]["field_rce_attainable"]
    assert methods["adacalib"]["log_loss"] < methods["isotonic"]["log_loss"] - 0.03
    assert methods["adacalib"]["auc"] > methods["uncalibrated"]["auc"] + 0.03


def test_predictor_has_learnt_the_features(spark: SparkSession, predicted: RunConfig, world: dict) -> None:
    # of what the world's own score is made of, the predictor sees price and device
    rows = read_calibrated(spark, predicted)
    device = dict(zip(("phone", "desk", "watch"), DEVICE_EFFECT, strict=True))
    known = [0.05 * price + device[name] for price, name in zip(world["price"], world["device"], strict=True)]
    by_key = dict(zip(world["key"], known, strict=True))
    logit = np.array([row["uncalibrated_logit"] for row in rows])
    assert np.corrcoef(logit, np.array([by_key[row["row_key"]] for row in rows]))[0, 1] > 0.9


def test_predicted_run_scores_every_row_once(spark: SparkSession, predicted: RunConfig, world: dict) -> None:
    rows = read_calibrated(spark, predicted)
    assert sorted(row["row_key"] for row in rows) == sorted(world["key"])
    assert_scored_once(spark, predicted, rows)
    assert_cells_add_up(spark, predicted)


def test_training_rows_are_those_of_train_and_dev(spark: SparkSession, predicted: RunConfig) -> None:
    rows = io.read_table(spark, predicted, "training_rows", schemas.TRAINING_ROWS)
    fit = io.read_table(spark, predicted, "scored_samples", schemas.scored_samples(predicted.fields)).filter(
        "split != 'test'"
    )
    assert rows.count() == fit.count() == read_metrics(predicted)["n_fit"]
    cells = io.read_table(spark, predicted, "logit_cells", schemas.LOGIT_CELLS).filter("field = 'shop'")
    by_value = cells.groupBy("field_value_id").agg(F.sum("n_samples").alias("n"))
    assert_table(rows.groupBy("field_value_id").agg(F.count("*").alias("n")), by_value, ["field_value_id"])


def test_field_value_metrics_add_up_to_the_test_split(spark: SparkSession, predicted: RunConfig) -> None:
    table = collect_rows(io.read_table(spark, predicted, "field_value_metrics", schemas.FIELD_VALUE_METRICS))
    rows = [row for row in read_calibrated(spark, predicted) if row["split"] == "test"]
    for field in predicted.fields:
        for method in ("uncalibrated", "adacalib"):
            mine = {r["field_value_id"]: r for r in table if r["field"] == field and r["method"] == method}
            for value_id, row in mine.items():
                samples = [r for r in rows if r[schemas.id_column(field)] == value_id]
                scores = np.array(
                    [
                        r["calibrated_score"] if method == "adacalib" else 1 / (1 + np.exp(-r["uncalibrated_logit"]))
                        for r in samples
                    ]
                )
                labels = np.array([r["label"] for r in samples])
                assert (row["n_samples"], row["n_responses"]) == (len(samples), labels.sum())
                assert row["sum_weight_score"] == pytest.approx(scores.sum(), rel=1e-9)
                loss = -np.mean(np.where(labels == 1, np.log(scores), np.log1p(-scores)))
                assert row["log_loss"] == pytest.approx(loss, rel=1e-9)
            assert sum(row["n_samples"] for row in mine.values()) == len(rows)


def test_metrics_are_those_of_the_rows(spark: SparkSession, own_scores: RunConfig) -> None:
    rows = [row for row in read_calibrated(spark, own_scores) if row["split"] == "test"]
    label, score = (np.array([row[name] for row in rows], float) for name in ("label", "calibrated_score"))
    shop = np.array([row["field_value_id_shop"] for row in rows])
    found = read_metrics(own_scores)["methods"]["adacalib"]
    sums = [(np.sum(shop == z), label[shop == z].sum(), score[shop == z].sum()) for z in np.unique(shop)]
    with_positive = [(n, y, p) for n, y, p in sums if y > 0]
    field_rce = sum(n * abs(p / y - 1) for n, y, p in with_positive) / sum(n for n, _, _ in with_positive)
    assert found["field_rce"] == pytest.approx(field_rce, rel=1e-9)
    loss = -np.mean(np.where(label == 1, np.log(score), np.log1p(-score)))
    assert found["log_loss"] == pytest.approx(loss, rel=1e-9)
    pairs = score[label == 1][:, None] - score[label == 0][None, :]
    assert found["auc"] == pytest.approx(np.mean(pairs > 0) + np.mean(pairs == 0) / 2, abs=2e-3)
    assert found["n_samples"] == len(rows)


def test_own_scores_without_features_need_no_rows(spark: SparkSession, own_scores: RunConfig, world: dict) -> None:
    assert "training_rows" not in {path.name for path in (own_scores.run_dir / "tables").iterdir()}
    rows = read_calibrated(spark, own_scores)
    assert sorted(row["row_key"] for row in rows) == sorted(world["key"])
    assert_scored_once(spark, own_scores, rows)
    assert_cells_add_up(spark, own_scores)
    assert_monotone(rows, "shop")
    methods = read_metrics(own_scores)["methods"]
    assert methods["adacalib"]["field_rce"] < 0.4 * methods["uncalibrated"]["field_rce"]
    assert methods["adacalib"]["log_loss"] < methods["uncalibrated"]["log_loss"] - 0.05


def test_missing_table_stops_a_later_stage_with_the_cure(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match="table samples is not there; run `adacalib prepare_samples` first"):
        run_stage(spark, make_config(tmp_path), "score_samples")


def test_own_scores_with_weights_days_and_features(spark: SparkSession, world: dict, tmp_path: Path) -> None:
    write_input(tmp_path, world)
    changes = {
        "input": {
            "score": "ln(score / (1 - score))",
            "score_kind": "logit",
            "weight": "w",
            "date": "day",
            "row_key": "key",
        },
        "split": {"by": "date"},
        "features": {"numeric": ["price"]},
        "calibrator": {"auxiliary": {"hidden": [8], "epochs": 2, "batch_size": 512}},
    }
    config = run_stages(spark, make_config(tmp_path, changes))
    rows = read_calibrated(spark, config)
    assert_scored_once(spark, config, rows)
    assert_cells_add_up(spark, config)
    given = dict(zip(world["key"], zip(world["w"], world["day"], strict=True), strict=True))
    assert all((row["weight"], row["date"]) == given[row["row_key"]] for row in rows)
    last_fit = max(row["date"] for row in rows if row["split"] != "test")
    assert last_fit < min(row["date"] for row in rows if row["split"] == "test")
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    assert {row["date"] for row in collect_rows(cells.select("date").distinct())} == {
        row["date"] for row in rows if row["split"] != "test"
    }
    methods = read_metrics(config)["methods"]
    assert methods["adacalib"]["field_rce"] < 0.5 * methods["uncalibrated"]["field_rce"]
    drift = json.loads((config.run_dir / "evaluation.json").read_text())["level_drift"]
    assert drift is not None
    told = json.loads((config.run_dir / "unified" / "training.json").read_text())
    assert 0.5 < told["forward_slope_measured"] < 1.5 and told["forward_slope_error"] > 0
    assert float(load_model(config.run_dir / "unified", config.field)[0].calibrator.slope) == told["forward_slope"]


def change_calibrator(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration with other switches; `auxiliary` takes a mapping of its own."""
    if "auxiliary" in changes:
        changes["auxiliary"] = config.calibrator.auxiliary.model_copy(update=changes["auxiliary"])
    return config.model_copy(update={"calibrator": config.calibrator.model_copy(update=changes)})


def copy_run(config: RunConfig, folder: Path) -> RunConfig:
    """A copy of a run, to train in it what the other tests must not see."""
    shutil.copytree(config.run_dir, folder / config.name)
    return config.model_copy(update={"runs_dir": str(folder)})


def train(config: RunConfig) -> tuple[Calibrator, str]:
    """Trains in this process; the calibrator as it is published, and the checkpoint's fingerprint."""
    train_calibrator(config)
    model, artifact = load_model(config.run_dir / "unified", config.field)
    assert model.calibrator is not None
    return model.calibrator, artifact.fingerprint


def spread_between_values(calibrator: Calibrator) -> float:
    """The largest difference between two field values' calibrated logits at one un-calibrated logit."""
    n_values = len(calibrator.level_shift_V)
    grid = torch.linspace(-2.0, 0.5, 26, dtype=torch.float64)
    with torch.no_grad():
        functions = torch.stack([calibrator(torch.full((26,), i), grid, {}) for i in range(1, n_values)])
    return float((functions.max(dim=0).values - functions.min(dim=0).values).max())


@pytest.mark.parametrize("switch", ["value_level", "value_slope", "value_shape", "bin_shrinkage"])
def test_each_part_of_robust_mode_off_changes_the_functions(own_scores: RunConfig, tmp_path: Path, switch: str) -> None:
    config = copy_run(own_scores, tmp_path)
    full = load_model(config.run_dir / "unified", config.field)[1].fingerprint
    calibrator, fingerprint = train(change_calibrator(config, **{switch: False}))
    assert fingerprint != full
    assert spread_between_values(calibrator) > 0.5  # the other parts still tell the shops apart


def test_without_any_part_per_value_all_values_share_the_global_curve(own_scores: RunConfig, tmp_path: Path) -> None:
    config = copy_run(own_scores, tmp_path)
    full, fingerprint = train(config)
    assert fingerprint == load_model(own_scores.run_dir / "unified", own_scores.field)[1].fingerprint
    off = dict.fromkeys(("value_level", "value_slope", "value_shape", "bin_shrinkage", "re_level"), False)
    shared, _ = train(change_calibrator(config, **off))
    assert spread_between_values(full) > 2.0
    assert spread_between_values(shared) < 0.3  # each value interpolates the curve between its own bounds


def test_do_no_harm_chooses_the_global_curve_only_where_told(own_scores: RunConfig, tmp_path: Path) -> None:
    calibrator, _ = train(change_calibrator(copy_run(own_scores, tmp_path), do_no_harm=False))
    assert spread_between_values(calibrator) > 2.0  # strong effects stay, asked or not


@pytest.mark.parametrize(
    "changes",
    [
        {"auxiliary": {"enabled": False}},
        {"auxiliary": {"field_value_embedding": False}},
        {"re_level": False},
    ],
    ids=str,
)
def test_parts_around_the_auxiliary_network(predicted: RunConfig, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = copy_run(predicted, tmp_path)
    before = load_model(config.run_dir / "unified", config.field)[1].fingerprint
    calibrator, fingerprint = train(change_calibrator(config, **changes))
    network, parts = calibrator.auxiliary, changes.get("auxiliary", {})
    assert (network is None) == (parts.get("enabled") is False)
    assert network is None or (network.value_embedding is not None) == parts.get("field_value_embedding", True)
    assert fingerprint != before
    if "re_level" in changes:
        assert not calibrator.level_shift_V.any()


def test_without_network_scores_are_those_of_the_forward_pass(
    spark: SparkSession, predicted: RunConfig, tmp_path: Path
) -> None:
    config = change_calibrator(copy_run(predicted, tmp_path), auxiliary={"enabled": False})
    train(config)
    run_stage(spark, config, "calibrate_samples")
    names = schemas.calibrated_samples(config.fields).fieldNames()
    scorer, _ = build_scorer(config.run_dir / "unified", config.field, names)  # from the features on
    samples = io.read_table(spark, config, "samples", schemas.samples(config.fields))
    expected = collect_rows(score_batches(samples, scorer, schemas.calibrated_samples(config.fields)), ["sample_id"])
    found = collect_rows(
        io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields)), ["sample_id"]
    )
    assert [row["sample_id"] for row in found] == [row["sample_id"] for row in expected]
    for name in ("uncalibrated_logit", "calibrated_logit", "calibrated_score"):
        np.testing.assert_allclose([row[name] for row in found], [row[name] for row in expected], atol=1e-6)


def test_auxiliary_network_adds_what_the_predictor_does_not_see(predicted: RunConfig) -> None:
    methods = read_metrics(predicted)["methods"]
    assert methods["adacalib"]["log_loss"] < methods["isotonic_offset"]["log_loss"] - 0.008
    assert methods["adacalib"]["field_auc"] > methods["isotonic_offset"]["field_auc"] + 0.01


@pytest.fixture(scope="module")
def paper(spark: SparkSession, world: dict, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Paper mode on own scores with features and three candidates."""
    folder = tmp_path_factory.mktemp("paper")
    write_input(folder, world)
    changes = KEYED | {
        "features": {"numeric": ["price"], "categorical": ["device"]},
        "bins": {"n_bins_candidates": [2, 4, 8]},
        "calibrator": {"mode": "paper", "epochs": 4, "auxiliary": {"hidden": [8], "epochs": 1, "batch_size": 256}},
    }
    return run_stages(spark, make_config(folder, changes))


def test_paper_mode_with_three_candidates_learns(spark: SparkSession, paper: RunConfig) -> None:
    rows = read_calibrated(spark, paper)
    assert_scored_once(spark, paper, rows)
    bins = io.read_table(spark, paper, "bin_statistics", schemas.BIN_STATISTICS)
    assert {row["n_bins_candidate"] for row in collect_rows(bins.select("n_bins_candidate").distinct())} == {2, 4, 8}
    methods = read_metrics(paper)["methods"]
    assert methods["adacalib"]["field_rce"] < methods["uncalibrated"]["field_rce"]


@pytest.mark.parametrize(
    "changes",
    [
        {"posterior_guidance": False},
        {"adaptive_function": False},
        {"adaptive_binning": False},
        {"auxiliary": {"enabled": False}},
    ],
    ids=str,
)
def test_the_papers_four_ablations(spark: SparkSession, paper: RunConfig, tmp_path: Path, changes: dict) -> None:
    config = copy_run(paper, tmp_path)
    full = load_model(config.run_dir / "unified", config.field)[1].fingerprint
    config = change_calibrator(config, **changes)
    if "adaptive_binning" in changes:  # the candidates in force change, and with them bin_statistics
        assert config.n_bins_candidates == (4,)
        run_stage(spark, config, "compute_bin_statistics")
    calibrator, fingerprint = train(config)
    assert fingerprint != full
    assert (calibrator.auxiliary is None) == ("auxiliary" in changes)
    assert (len(calibrator.table.knots_RJ) == 1) == ("adaptive_function" in changes)
    if "adaptive_binning" in changes:
        assert int(calibrator.table.n_bins_R.max()) <= 4


def test_reference_path_of_the_bins_serves_as_well(spark: SparkSession, own_scores: RunConfig, tmp_path: Path) -> None:
    config = copy_run(own_scores, tmp_path)
    config = config.model_copy(update={"bins": config.bins.model_copy(update={"method": "approx_quantile"})})
    run_stage(spark, config, "compute_bin_statistics")
    assert io.read_manifest(config, "bin_statistics")["method"] == "approx_quantile"
    train(config)
    run_stage(spark, config, "calibrate_samples")
    rows, before = read_calibrated(spark, config), read_calibrated(spark, own_scores)
    assert_monotone(rows, "shop")
    loss = [compute_log_loss(found, "calibrated_logit") for found in (rows, before)]
    assert loss[0] != loss[1]
    assert loss[0] == pytest.approx(loss[1], abs=0.005)  # other bounds, the same data


def test_tables_of_two_predictors_are_refused(spark: SparkSession, own_scores: RunConfig, tmp_path: Path) -> None:
    config = copy_run(own_scores, tmp_path)
    new_scores = config.model_copy(update={"input": config.input.model_copy(update={"score_version": "next-model"})})
    for stage in ("score_samples", "build_logit_cells"):
        run_stage(spark, new_scores, stage)
    with pytest.raises(MixedTables, match=r"logit_cells from next-model.*bin_statistics from own-scores"):
        train(new_scores)


def compute_log_loss(rows: list[dict[str, Any]], name: str) -> float:
    """Mean cross-entropy of the test split, from log-odds."""
    rows = [row for row in rows if row["split"] == "test"]
    label, logit = (np.array([row[column] for row in rows], float) for column in ("label", name))
    return float(np.mean(np.logaddexp(0, logit) - label * logit))
