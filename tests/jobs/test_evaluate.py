"""The stage `evaluate` with known true probabilities; without them tests/jobs/test_whole_chain.py holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from tests.assert_table import collect_rows
from tests.small_runs import make_config, run_stages, write_input

N_ROWS = 2500


@pytest.fixture(scope="module")
def with_truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Own scores that miss the level of each of five shops; the truth comes along. Two fields."""
    folder = tmp_path_factory.mktemp("truth")
    rng = np.random.default_rng(3)
    shop, known = rng.integers(0, 5, N_ROWS), rng.normal(-1, 1, N_ROWS)
    truth = 1 / (1 + np.exp(-(known + np.linspace(-1.5, 1.5, 5)[shop])))
    columns = {
        "label": (rng.random(N_ROWS) < truth).astype(np.int32).tolist(),
        "score": (1 / (1 + np.exp(-known))).tolist(),
        "t": truth.tolist(),
        "shop": [f"shop {i}" for i in shop],
        "town": [f"town {i % 2}" for i in shop],
    }
    write_input(folder, columns)
    return run_stages(spark, make_config(folder, {"input": {"truth": "t"}, "fields": ["shop", "town"]}))


def read_json(config: RunConfig, name: str) -> Any:
    return json.loads((Path(config.run_dir) / name).read_text())


def test_every_method_is_held_against_the_truth(spark: SparkSession, with_truth: RunConfig) -> None:
    table = io.read_table(spark, with_truth, "calibrated_samples", schemas.calibrated_samples(with_truth.fields))
    test = [row for row in collect_rows(table) if row["split"] == "test"]
    truth, p, y = (np.array([row[n] for row in test], float) for n in ("true_probability", "calibrated_score", "label"))
    methods = read_json(with_truth, "metrics.json")["methods"]
    assert set(methods) == {"uncalibrated", "isotonic", "isotonic_offset", "adacalib", "truth"}
    assert methods["adacalib"]["truth_error"] == pytest.approx(np.abs(p - truth).sum() / truth.sum(), rel=1e-9)
    shop = np.array([row["field_value_id_shop"] for row in test])
    against, floor = [], []
    for value in np.unique(shop):
        own = shop == value
        against.append(own.sum() * abs(p[own].sum() / truth[own].sum() - 1))
        floor.append(own.sum() * abs(truth[own].sum() / y[own].sum() - 1))
    assert methods["adacalib"]["truth_field_rce"] == pytest.approx(sum(against) / len(test), rel=1e-9)
    for metrics in methods.values():
        assert metrics["field_rce_truth_floor"] == pytest.approx(sum(floor) / len(test), rel=1e-9)
    assert methods["truth"]["truth_error"] == 0.0
    assert methods["adacalib"]["truth_error"] < 0.5 * methods["uncalibrated"]["truth_error"]
    low, high = methods["adacalib"]["intervals"]["truth_error"]
    assert low < methods["adacalib"]["truth_error"] < high


def test_differences_and_other_fields_have_it_too(with_truth: RunConfig) -> None:
    metrics = read_json(with_truth, "metrics.json")
    difference = metrics["paired_differences"]["adacalib_minus_uncalibrated"]["truth_error"]
    ours, theirs = (metrics["methods"][name]["truth_error"] for name in ("adacalib", "uncalibrated"))
    assert difference["difference"] == pytest.approx(ours - theirs)
    assert difference["p_value"] < 0.01
    # Σ|p − t| and Σt are of the same rows, whatever the field
    assert metrics["other_fields"]["town"]["adacalib"]["truth_error"] == pytest.approx(ours)


def test_tables_and_curves_keep_to_the_methods(spark: SparkSession, with_truth: RunConfig) -> None:
    table = io.read_table(spark, with_truth, "field_value_metrics", schemas.FIELD_VALUE_METRICS)
    known = {"uncalibrated", "isotonic", "isotonic_offset", "adacalib"}
    assert {row["method"] for row in collect_rows(table)} == known
    curves = read_json(with_truth, "evaluation.json")["reliability"]
    assert {curve["method"] for curve in curves} == known
    assert {curve["field_value_id"] for curve in curves} == {None, 1, 2, 3, 4, 5}
