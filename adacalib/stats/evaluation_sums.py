"""Calibrated samples of the test split → the sums that every metric is computed from.

Two passes, whatever the number of metrics and methods: one adds up scores and losses by (field value, tercile, group of
rows), one counts samples by (field value, method, score cell). Nothing of the size field values × score cells reaches
the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from adacalib.cells.evaluation import TRUTH, EvaluationSums
from adacalib.cells.grouped_sums import GroupedSums, MetricsError
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, LogitCells, cells_from_columns
from adacalib.cells.terciles import N_TERCILES, compute_tercile_starts
from adacalib.schemas import id_column
from adacalib.stats.logit_cells import assign_cell
from adacalib.stats.score_cells import (
    build_score_cells,
    collect_pooled_cells,
    collect_shown_cells,
    collect_value_aucs,
    score_column,
)

__all__ = ["Predict", "add_scores", "collect_cells", "score_column", "sum_by_group", "summarise_test"]

Predict = Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""(un-calibrated logit, dense field value id) → probability."""

_SALT_GROUP = 3


def add_scores(rows: DataFrame, field: str, predictors: Mapping[str, Predict]) -> DataFrame:
    """Adds a probability per method: `score__uncalibrated`, one per predictor given, and of calibrated samples
    `score__adacalib`.

    Args:
        rows: calibrated samples, or scored ones, which have no calibrated_score.
        field: the calibrated field, whose ids the predictors take.
        predictors: method → function, applied to Arrow batches on the executors.
    """
    logit = F.col("uncalibrated_logit").cast("double")
    own_scores = {score_column("uncalibrated"): F.lit(1.0) / (1.0 + F.exp(-logit))}
    if "calibrated_score" in rows.columns:
        own_scores[score_column("adacalib")] = F.col("calibrated_score")
    own = rows.withColumns(own_scores)
    if not predictors:
        return own
    names = {method: score_column(method) for method in predictors}

    def predict(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            logit = batch.column("uncalibrated_logit").to_numpy().astype(np.float64)
            ids = batch.column(id_column(field)).to_numpy().astype(np.int64)
            scores = [pa.array(function(logit, ids)) for function in predictors.values()]
            yield pa.RecordBatch.from_arrays([*batch.columns, *scores], names=[*batch.schema.names, *names.values()])

    added = [StructField(name, DoubleType(), nullable=False) for name in names.values()]
    schema = StructType([*own.schema.fields, *added])
    return own.mapInArrow(predict, schema)


def summarise_test(
    rows: DataFrame,
    methods: Sequence[str],
    field: str,
    test_cells: LogitCells,
    *,
    n_groups: int,
    seed: int,
    cells_per_logit: int,
    has_truth: bool = False,
    has_weights: bool = True,
    shown_values: Sequence[int] = (),
) -> EvaluationSums:
    """Adds up the test rows of one field to what every metric of every method is computed from.

    Reads the rows twice: persist them where their scores are dear.

    Args:
        rows: test samples with one score column per method (`add_scores`).
        methods: those columns' methods.
        test_cells: the rows' logit cells of this field; they decide the terciles.
        n_groups: jackknife groups, by a seeded hash of sample_id.
        cells_per_logit: of the score cells that AUC and reliability are computed from.
        has_truth: whether every row has a true_probability; it then becomes one more method, `truth`, and every
            method is held against it.
        has_weights: without weights the weighted sums of score cells follow from their counts.
        shown_values: ids of the few field values whose reliability is asked for.

    Raises:
        MetricsError: has_truth, and a row has no true_probability.
    """
    if has_truth:
        rows = rows.withColumn(score_column(TRUTH), F.col("true_probability"))
        methods = (*methods, TRUTH)
    grouped = sum_by_group(rows, test_cells, field, methods, n_groups, seed, has_truth)
    cells = build_score_cells(rows, field, methods, cells_per_logit, has_weights=has_weights)
    cells = cells.persist(StorageLevel.DISK_ONLY)
    try:
        return EvaluationSums(
            grouped=grouped,
            value_aucs=collect_value_aucs(cells, methods),
            score_cells=collect_pooled_cells(cells, methods),
            shown_cells=collect_shown_cells(cells, methods, shown_values),
        )
    finally:
        cells.unpersist()


def sum_by_group(
    rows: DataFrame,
    test_cells: LogitCells,
    field: str,
    methods: Sequence[str],
    n_groups: int,
    seed: int,
    has_truth: bool = False,
) -> GroupedSums:
    """Adds up scores, losses and errors against the truth of every method by (field value, tercile, jackknife group).

    Driver memory: a row of 8-byte sums, four and two per method (with a truth two more and three per method), per
    field value × jackknife group × tercile that has samples. The arguments and what it raises are those of
    `summarise_test`, but that no method is added here.
    """
    sums = _list_sums(methods)
    if has_truth:
        sums |= _list_truth_sums(methods)
    group = F.pmod(F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_GROUP)), F.lit(n_groups)).cast("int")
    placed = _join_tercile(rows.withColumnRenamed(id_column(field), "field_value_id"), test_cells)
    # one number as the key: Spark groups by it faster than by three
    key = (F.col("field_value_id").cast("long") * N_TERCILES + F.col("tercile")) * n_groups + group
    table = placed.groupBy(key.alias("key")).agg(*[sum_.alias(name) for name, sum_ in sums.items()]).toArrow()
    columns = {name: table[name].to_numpy() for name in table.column_names}
    value_tercile, group_of_row = np.divmod(columns["key"], n_groups)
    if has_truth and (n_missing := int(columns["n_samples"].sum() - columns["n_truths"].sum())):
        raise MetricsError(
            f"{n_missing} test samples have no true_probability: it is given for all rows or for none (input.truth); "
            "run from prepare_samples again"
        )
    return GroupedSums(
        field_value_id=value_tercile // N_TERCILES,
        tercile=value_tercile % N_TERCILES,
        group=group_of_row,
        weight=columns["weight"],
        response=columns["response"],
        n_samples=columns["n_samples"],
        n_responses=columns["n_responses"],
        score_sums={method: columns[f"score_{method}"] for method in methods},
        log_loss_sums={method: columns[f"loss_{method}"] for method in methods},
        n_values=test_cells.n_values,
        n_groups=n_groups,
        truth_sum=columns["truth"] if has_truth else None,
        truth_error_sums={method: columns[f"error_{method}"] for method in methods} if has_truth else {},
    )


def _list_sums(methods: Iterable[str]) -> dict[str, Column]:
    weight, label = F.col("weight"), F.col("label")
    sums = {
        "weight": F.sum(weight),
        "response": F.sum(weight * label),
        "n_samples": F.count(F.lit(1)),
        "n_responses": F.sum(label.cast("long")),
    }
    for method in methods:
        score = F.col(score_column(method))
        clipped = F.greatest(F.lit(PROBABILITY_LIMIT), F.least(F.lit(1 - PROBABILITY_LIMIT), score))
        # not log1p: it takes Java several times as long, and 1 - 1e-7 is precise enough
        loss = -F.log(F.when(label == 1, clipped).otherwise(1 - clipped))
        sums |= {f"score_{method}": F.sum(weight * score), f"loss_{method}": F.sum(weight * loss)}
    return sums


def _list_truth_sums(methods: Iterable[str]) -> dict[str, Column]:
    weight, truth = F.col("weight"), F.col("true_probability")
    sums = {"truth": F.sum(weight * truth), "n_truths": F.count(truth)}
    for method in methods:
        sums[f"error_{method}"] = F.sum(weight * F.abs(F.col(score_column(method)) - truth))
    return sums


def collect_cells(logit_cells: DataFrame, n_values: int) -> LogitCells:
    """Logit cells of one field in memory, days added up before: bounded by field values × cells."""
    sums = ("n_samples", "n_responses", "sum_weight", "sum_weight_responses", "sum_weight_logit")
    added = [F.sum(name).alias(name) for name in sums]
    table = logit_cells.groupBy("field_value_id", "cell").agg(*added).toArrow()
    return cells_from_columns({name: table[name].to_numpy() for name in table.column_names}, n_values)


def _join_tercile(rows: DataFrame, test_cells: LogitCells) -> DataFrame:
    """Adds the tercile of the row's un-calibrated logit within its field value; cells are never split."""
    first, second = compute_tercile_starts(test_cells)
    ids = np.arange(test_cells.n_values, dtype=np.int32)
    starts = pa.table({"field_value_id": ids, "second_from": first, "third_from": second})
    bounds = F.broadcast(rows.sparkSession.createDataFrame(starts))
    cell = assign_cell(F.col("uncalibrated_logit"))
    tercile = (cell >= F.col("second_from")).cast("int") + (cell >= F.col("third_from")).cast("int")
    return rows.join(bounds, "field_value_id").withColumn("tercile", tercile)
