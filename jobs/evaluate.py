"""calibrated_samples (test) + logit_cells → metrics.json, evaluation.json, field_value_metrics.

Reads  calibrated_samples of split test (one row per sample), logit_cells (train ∪ dev) and field_values; of dated data
       also scored_samples of split dev.
Writes metrics.json         every metric of every method, per field
       evaluation.json      reliability of each method; level drift of dated data
       field_value_metrics  one row per (field, field value, method)
Beside AdaCalib and the un-calibrated score stand isotonic and isotonic_offset, fitted on the same cells, and the true
probabilities where `input.truth` gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.baselines.isotonic_offset import IsotonicOffset, fit_isotonic_offset
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.evaluation import EvaluationSums, describe_differences, describe_methods, describe_reliability
from adacalib.cells.logit_cells import LogitCells
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats import evaluation_sums
from adacalib.stats.field_value_metrics import build_field_value_metrics
from adacalib.stats.level_drift import measure_level_drift
from adacalib.stats.logit_cells import build_logit_cells
from adacalib.stats.reference_scores import add_reference_scores

METHODS = ("uncalibrated", "isotonic", "isotonic_offset", "adacalib")
N_SHOWN_VALUES = 6


@dataclass(frozen=True)
class _Sums:
    """What the test split was added up to, for one field."""

    evaluated: EvaluationSums
    test_cells: LogitCells


def run(spark: SparkSession, config: RunConfig) -> None:
    """Evaluates every field of the run."""
    origin = read_origin(config, ("logit_cells", "calibrated_samples", "field_values"))
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    fit_cells = _read_fit_cells(spark, config)
    calibrated = io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields))
    test = evaluation_sums.add_scores(calibrated.filter("split = 'test'"), config.field, {})
    test = _add_references(test, config.field, fit_isotonic_offset(fit_cells[config.field]))
    frequent = _list_frequent_values(fit_cells[config.field])
    sums = {field: _add_up(test, values, config, field, fit_cells[field].n_values, frequent) for field in config.fields}
    rows = [build_field_value_metrics(values, field, sums[field].evaluated.grouped, METHODS) for field in config.fields]
    table = reduce(DataFrame.unionByName, rows)
    io.write_table(table, config, "field_value_metrics", schemas.FIELD_VALUE_METRICS, facts=origin)
    main = sums[config.field]
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    document = {
        "reliability": describe_reliability(main.evaluated, METHODS, frequent),
        "level_drift": measure_level_drift(scored, values, config, main.test_cells, fit_cells[config.field]),
    }
    io.write_json(config.run_dir / "evaluation.json", document)
    io.write_json(config.run_dir / "metrics.json", _describe(config, sums, fit_cells))


def _add_references(test: DataFrame, field: str, fitted: IsotonicOffset) -> DataFrame:
    curve = fitted.isotonic
    rate_limits = (curve.lowest_rate, curve.highest_rate)
    return add_reference_scores(test, field, curve.logit_knots, curve.rate_knots, rate_limits, fitted.level_V)


def _read_fit_cells(spark: SparkSession, config: RunConfig) -> dict[str, LogitCells]:
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    n_values = io.read_manifest(config, "samples")["n_field_values"]
    return {
        field: evaluation_sums.collect_cells(cells.filter(F.col("field") == field), n_values[field] + 1)
        for field in config.fields
    }


def _list_frequent_values(fit_cells: LogitCells) -> list[int]:
    """The field values whose reliability is shown: the heaviest of train ∪ dev."""
    weight = fit_cells.sum_by_value(fit_cells.weight)
    return [int(value) for value in np.argsort(-weight, kind="stable")[:N_SHOWN_VALUES] if weight[value] > 0]


def _add_up(
    test: DataFrame, values: DataFrame, config: RunConfig, field: str, n_values: int, frequent: list[int]
) -> _Sums:
    cells = build_logit_cells(test, values, field, has_weights=config.input.weight is not None)
    test_cells = evaluation_sums.collect_cells(cells, n_values)
    evaluated = evaluation_sums.summarise_test(
        test,
        METHODS,
        field,
        test_cells,
        n_groups=config.evaluation.jackknife_groups,
        seed=config.seed,
        cells_per_logit=config.evaluation.choose_score_cells(len(METHODS) * int(test_cells.n_samples.sum())),
        has_truth=config.input.truth is not None,
        has_weights=config.input.weight is not None,
        shown_values=frequent if field == config.field else (),
    )
    return _Sums(evaluated, test_cells)


def _describe(config: RunConfig, sums: dict[str, _Sums], fit_cells: dict[str, LogitCells]) -> dict[str, Any]:
    settings = config.evaluation
    methods, differences = {}, {}
    for field, found in sums.items():
        levels = compute_reference_levels(fit_cells[field], found.test_cells, settings.attainable_draws, config.seed)
        methods[field] = describe_methods(found.evaluated, levels, settings.interval_level)
        grouped = found.evaluated.grouped
        differences[field] = {
            f"adacalib_minus_{other}": describe_differences(grouped, "adacalib", other, settings.interval_level)
            for other in ("uncalibrated", "isotonic_offset")
        }
    return {
        "field": config.field,
        "n_test": int(sums[config.field].test_cells.n_samples.sum()),
        "n_fit": int(fit_cells[config.field].n_samples.sum()),
        "reference_score": REFERENCE_SCORE,
        "methods": methods[config.field],
        "paired_differences": differences[config.field],
        "other_fields": {f: methods[f] | {"paired_differences": differences[f]} for f in config.fields[1:]},
    }


if __name__ == "__main__":
    io.run_job(run)
