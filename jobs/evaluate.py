"""calibrated_samples (test) + logit_cells → metrics.json, evaluation.json, field_value_metrics.

Reads  calibrated_samples of split test (one row per sample), logit_cells (train ∪ dev) and field_values.
Writes metrics.json       every metric of every method, per field
       evaluation.json    reliability of each method, level drift of dated data
       field_value_metrics  one row per (field, field value, method)
Beside AdaCalib and the un-calibrated score stand isotonic and isotonic_offset, fitted on the same cells.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.baselines.isotonic import fit_isotonic
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.auc import compute_auc, compute_field_auc
from adacalib.cells.grouped_sums import GroupedSums, sum_by_key
from adacalib.cells.intervals import compute_paired_difference
from adacalib.cells.level_drift import compare_levels
from adacalib.cells.logit_cells import LogitCells
from adacalib.cells.metrics import compute_field_value_rows, compute_metrics
from adacalib.cells.reliability import compute_reliability
from adacalib.config import RunConfig
from adacalib.stats import evaluation_sums
from adacalib.stats.logit_cells import build_logit_cells

METHODS = ("uncalibrated", "isotonic", "isotonic_offset", "adacalib")
N_RELIABILITY_BINS = 12
N_SHOWN_VALUES = 6


@dataclass(frozen=True)
class FieldEvaluation:
    """Everything computed about one field: metrics per method and the sums that tables and pictures take."""

    methods: dict[str, dict[str, Any]]
    sums: GroupedSums
    score_cells: dict[str, np.ndarray]  # type: ignore[type-arg]
    test_cells: LogitCells
    paired: dict[str, Any]


def run(spark: SparkSession, config: RunConfig) -> None:
    """Evaluates every field of the run."""
    manifest = io.read_manifest(config, "samples")
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    fit_table = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    calibrated = io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields))
    n_values = {field: n + 1 for field, n in manifest["n_field_values"].items()}
    fit_cells = {
        f: evaluation_sums.collect_cells(fit_table.filter(F.col("field") == f), n_values[f]) for f in config.fields
    }
    predictors = {
        "isotonic": fit_isotonic(fit_cells[config.field]).predict,
        "isotonic_offset": fit_isotonic_offset(fit_cells[config.field]).predict,
    }
    test = evaluation_sums.add_scores(calibrated.filter("split = 'test'"), config.field, predictors)
    test = test.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = {f: _evaluate_field(test, values, fit_cells[f], config, f) for f in config.fields}
    finally:
        test.unpersist()
    table = reduce(DataFrame.unionByName, [_name_rows(spark, values, f, found[f]) for f in config.fields])
    io.write_table(table, config, "field_value_metrics", schemas.FIELD_VALUE_METRICS)
    io.write_json(config.run_dir / "metrics.json", _describe(config, found, fit_cells[config.field]))
    shown = [int(v) for v in np.argsort(-fit_cells[config.field].sum_by_value(fit_cells[config.field].weight))]
    io.write_json(
        config.run_dir / "evaluation.json",
        {
            "reliability": _describe_reliability(found[config.field], shown[:N_SHOWN_VALUES]),
            "level_drift": _describe_level_drift(
                spark, config, found[config.field].test_cells, fit_cells[config.field]
            ),
        },
    )


def _evaluate_field(
    test: DataFrame, values: DataFrame, fit_cells: LogitCells, config: RunConfig, field: str
) -> FieldEvaluation:
    settings = config.evaluation
    has_weights = config.input.weight is not None
    cells = build_logit_cells(test, values, field, has_weights=has_weights)
    test_cells = evaluation_sums.collect_cells(cells, fit_cells.n_values)
    reference = fit_isotonic_offset(fit_cells)
    levels = compute_reference_levels(reference, fit_cells, test_cells, settings.attainable_draws, config.seed)
    sums = evaluation_sums.sum_by_group(test, test_cells, field, METHODS, settings.jackknife_groups, config.seed)
    counted = evaluation_sums.count_score_cells(test, field, METHODS).toArrow()
    columns = {name: counted[name].to_numpy() for name in counted.column_names}
    methods = {}
    for method in METHODS:
        own = {name: array[columns["method"] == method] for name, array in columns.items()}
        counts = (own["weight"], own["response"], own["n_samples"], own["n_responses"])
        auc = compute_auc(own["cell"], *counts)
        field_auc = compute_field_auc(own["field_value_id"], own["cell"], *counts)
        methods[method] = compute_metrics(sums, method, auc, field_auc, levels, settings.interval_level)
    paired = {
        metric: _as_json(compute_paired_difference(sums, "adacalib", other, metric, settings.interval_level))
        for other in ("isotonic_offset",)
        for metric in ("field_rce", "field_rce_terciles", "log_loss")
    }
    return FieldEvaluation(methods, sums, columns, test_cells, {"adacalib_minus_isotonic_offset": paired})


def _describe(config: RunConfig, found: dict[str, FieldEvaluation], fit_cells: LogitCells) -> dict[str, Any]:
    main = found[config.field]
    return {
        "field": config.field,
        "n_test": int(main.test_cells.n_samples.sum()),
        "n_fit": int(fit_cells.n_samples.sum()),
        "reference_score": REFERENCE_SCORE,
        "methods": main.methods,
        "paired_differences": main.paired,
        "other_fields": {
            field: {**found[field].methods, "paired_differences": found[field].paired} for field in config.fields[1:]
        },
    }


def _describe_reliability(found: FieldEvaluation, shown: list[int]) -> list[dict[str, Any]]:
    """Reliability of every method, over all samples (field_value_id null) and for the field values shown."""
    columns = found.score_cells
    described = []
    for value in (None, *shown):
        for method in METHODS:
            rows = (columns["method"] == method) & (value is None or columns["field_value_id"] == value)
            names = ("cell", "weight", "response", "score_sum", "n_samples")
            reliability = compute_reliability(*(columns[name][rows] for name in names), n_bins=N_RELIABILITY_BINS)
            points = {name: array.tolist() for name, array in asdict(reliability).items()}
            described.append({"field_value_id": value, "method": method, **points})
    return described


def _describe_level_drift(
    spark: SparkSession, config: RunConfig, test_cells: LogitCells, fit_cells: LogitCells
) -> dict[str, Any] | None:
    """Dated data only: un-calibrated, global curve on dev, global curve on train ∪ dev."""
    if config.input.date is None or config.split.dev == 0:
        return None
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    cells = build_logit_cells(
        scored.filter("split = 'dev'"), values, config.field, has_weights=config.input.weight is not None
    )
    dev_cells = evaluation_sums.collect_cells(cells, fit_cells.n_values)
    return compare_levels(test_cells, {"none": None, "dev": dev_cells, "train_and_dev": fit_cells})


def _name_rows(spark: SparkSession, values: DataFrame, field: str, found: FieldEvaluation) -> DataFrame:
    """Per-value rows of every method, with the raw field value."""
    tables = []
    for method in METHODS:
        rows = compute_field_value_rows(found.sums, method)
        loss = sum_by_key(found.sums.field_value_id, found.sums.log_loss_sums[method], found.sums.n_values)
        tables.append(
            pa.table(
                {
                    "field_value_id": rows.field_value_id.astype(np.int32),
                    "method": [method] * len(rows.field_value_id),
                    "n_samples": rows.n_samples.astype(np.int64),
                    "n_responses": rows.n_responses.astype(np.int64),
                    "sum_weight": rows.weight,
                    "sum_weight_responses": rows.response,
                    "sum_weight_score": rows.score_sum,
                    "log_loss": loss[rows.field_value_id] / rows.weight,
                }
            )
        )
    names = values.filter(F.col("field") == field).select(
        "field", "field_value", "value_kind", "field_value_id", F.col("n_samples").alias("n_fit_samples")
    )
    return spark.createDataFrame(pa.concat_tables(tables)).join(names, "field_value_id")


def _as_json(difference: Any) -> dict[str, Any] | None:
    return (
        None
        if difference is None
        else {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(difference).items()}
    )


if __name__ == "__main__":
    io.run_job(run)
