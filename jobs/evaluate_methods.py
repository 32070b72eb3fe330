"""All methods of one seed on the same test rows: what compare and ablate measure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from adacalib import io, schemas
from adacalib.baselines.catalogue import Entry
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.evaluation import describe_methods
from adacalib.cells.seeds import list_leave_outs
from adacalib.cells.sparsity import describe_sparsity
from adacalib.config import RunConfig
from adacalib.model.score import build_comparer
from adacalib.stats import evaluation_sums
from adacalib.stats.level_drift import measure_level_drift
from adacalib.stats.logit_cells import build_logit_cells

PAIRED = ("field_rce", "field_rce_terciles", "log_loss", "truth_error")
"""The metrics whose differences are tested over groups of rows too."""


def evaluate_seed(
    spark: SparkSession, config: RunConfig, trained: Mapping[str, Path], baselines: Mapping[str, Entry]
) -> dict[str, Any]:
    """All methods on the test rows of one seed.

    Args:
        config: the run whose tables are read.
        trained: name → unified checkpoint.
        baselines: name → method to fit on the logit cells.

    Returns:
        What JSON can hold: methods (metrics and fit_seconds of each), leave_outs (the paired metrics without each
        group of rows), sparsity, level_drift, n_test, n_fit.
    """
    field, settings = config.field, config.evaluation
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS).filter(F.col("field") == field)
    n_values = io.read_manifest(config, "samples")["n_field_values"][field] + 1
    fit_cells = evaluation_sums.collect_cells(cells, n_values)
    fitted, seconds = {}, {name: _read_seconds(path) for name, path in trained.items()}
    for name, entry in baselines.items():
        started = time.monotonic()
        fitted[name] = entry.fit(fit_cells)
        seconds[name] = time.monotonic() - started
    rows = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    test = rows.filter("split = 'test'")
    scored = _add_trained(test, field, trained)
    scored = evaluation_sums.add_scores(scored, field, {name: method.predict for name, method in fitted.items()})
    scored = scored.persist(StorageLevel.DISK_ONLY)
    try:
        methods = ("uncalibrated", *baselines, *trained)
        test_cells = evaluation_sums.collect_cells(
            build_logit_cells(test, values, field, has_weights=config.input.weight is not None), n_values
        )
        sums = evaluation_sums.summarise_test(
            scored,
            methods,
            field,
            test_cells,
            n_groups=settings.jackknife_groups,
            seed=config.seed,
            cells_per_logit=settings.choose_score_cells(len(methods) * int(test_cells.n_samples.sum())),
            has_truth=config.input.truth is not None,
            has_weights=config.input.weight is not None,
        )
    finally:
        scored.unpersist()
    levels = compute_reference_levels(fit_cells, test_cells, settings.attainable_draws, config.seed)
    described = describe_methods(sums, levels, settings.interval_level)
    n_fit_V = fit_cells.sum_by_value(fit_cells.n_samples.astype(np.float64))
    return {
        "seed": config.seed,
        "n_test": int(test_cells.n_samples.sum()),
        "n_fit": int(fit_cells.n_samples.sum()),
        "reference_score": REFERENCE_SCORE,
        "methods": {name: own | {"fit_seconds": seconds.get(name, 0.0)} for name, own in described.items()},
        "leave_outs": {name: list_leave_outs(sums.grouped, name, PAIRED) for name in methods},
        "sparsity": {name: describe_sparsity(n_fit_V, sums.grouped, name) for name in methods},
        "level_drift": measure_level_drift(rows, values, config, test_cells, fit_cells),
    }


def _add_trained(rows: DataFrame, field: str, trained: Mapping[str, Path]) -> DataFrame:
    columns = {evaluation_sums.score_column(name): path for name, path in trained.items()}
    added = [StructField(name, DoubleType(), nullable=False) for name in columns]
    kept = [f for f in rows.schema.fields if not f.name.startswith("auxiliary_")]
    schema = StructType([*kept, *added])
    return rows.mapInArrow(build_comparer(columns, field, schema.fieldNames()), schema)


def _read_seconds(unified: Path) -> float:
    """From the trainer's start to the saved calibrator."""
    return float(io.read_json(unified / "training.json")["seconds"])
