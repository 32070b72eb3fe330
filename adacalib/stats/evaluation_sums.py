"""Calibrated samples of the test split → the sums that every metric is computed from.

The number of passes does not depend on the number of metrics or methods: one adds up scores and losses by (field value,
tercile, jackknife group), one counts samples by (method, field value, score cell).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from adacalib.cells.grouped_sums import GroupedSums
from adacalib.cells.logit_cells import PROBABILITY_LIMIT, LogitCells, cells_from_columns
from adacalib.cells.terciles import compute_tercile_starts
from adacalib.schemas import id_column
from adacalib.stats.logit_cells import assign_cell

Predict = Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""(un-calibrated logit, dense field value id) → probability."""

SCORE_CELLS_PER_LOGIT = 512
"""Cells of a method's own score for AUC and reliability; the error they cause is computed and reported."""

_SALT_GROUP = 3


def score_column(method: str) -> str:
    """Name of the column with a method's score."""
    return f"score__{method}"


def add_scores(rows: DataFrame, field: str, predictors: Mapping[str, Predict]) -> DataFrame:
    """Adds a probability per method: `score__uncalibrated`, `score__adacalib`, and one per predictor given.

    Args:
        rows: calibrated samples.
        field: the calibrated field, whose ids the predictors take.
        predictors: method → function, applied to Arrow batches on the executors.
    """
    own = rows.withColumns(
        {
            score_column("uncalibrated"): F.lit(1.0) / (1.0 + F.exp(-F.col("uncalibrated_logit").cast("double"))),
            score_column("adacalib"): F.col("calibrated_score"),
        }
    )
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


def sum_by_group(
    rows: DataFrame, test_cells: LogitCells, field: str, methods: Iterable[str], n_groups: int, seed: int
) -> GroupedSums:
    """Adds up scores and losses of every method by (field value, tercile, jackknife group).

    Args:
        rows: test samples with one score column per method.
        test_cells: their logit cells of this field; they decide the terciles.
        n_groups: jackknife groups, by a seeded hash of sample_id.
    """
    methods = list(methods)
    weight, label = F.col("weight"), F.col("label")
    sums = [
        F.sum(weight).alias("weight"),
        F.sum(weight * label).alias("response"),
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(label.cast("long")).alias("n_responses"),
    ]
    for method in methods:
        score = F.greatest(F.lit(PROBABILITY_LIMIT), F.least(F.lit(1 - PROBABILITY_LIMIT), F.col(score_column(method))))
        loss = -F.when(label == 1, F.log(score)).otherwise(F.log1p(-score))
        sums += [
            F.sum(weight * F.col(score_column(method))).alias(f"score_{method}"),
            F.sum(weight * loss).alias(f"loss_{method}"),
        ]
    group = F.pmod(F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_GROUP)), F.lit(n_groups)).cast("int")
    placed = _join_tercile(rows.withColumnRenamed(id_column(field), "field_value_id"), test_cells)
    table = placed.groupBy("field_value_id", "tercile", group.alias("jackknife_group")).agg(*sums).toArrow()
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return GroupedSums(
        field_value_id=columns["field_value_id"].astype(np.int64),
        tercile=columns["tercile"].astype(np.int64),
        group=columns["jackknife_group"].astype(np.int64),
        weight=columns["weight"],
        response=columns["response"],
        n_samples=columns["n_samples"],
        n_responses=columns["n_responses"],
        score_sums={method: columns[f"score_{method}"] for method in methods},
        log_loss_sums={method: columns[f"loss_{method}"] for method in methods},
        n_values=test_cells.n_values,
        n_groups=n_groups,
    )


def count_score_cells(rows: DataFrame, field: str, methods: Iterable[str]) -> DataFrame:
    """One row per (method, field value, cell of the method's own score): what AUC and reliability need.

    Columns method, field_value_id, cell, weight, response, score_sum, n_samples, n_responses.
    """
    pairs = [F.struct(F.lit(m).alias("method"), F.col(score_column(m)).alias("score")) for m in methods]
    exploded = rows.select(
        F.col(id_column(field)).alias("field_value_id"), "label", "weight", F.explode(F.array(*pairs)).alias("scored")
    )
    score, weight, label = F.col("scored.score"), F.col("weight"), F.col("label")
    return exploded.groupBy(
        F.col("scored.method").alias("method"), "field_value_id", _score_cell(score).alias("cell")
    ).agg(
        F.sum(weight).alias("weight"),
        F.sum(weight * label).alias("response"),
        F.sum(weight * score).alias("score_sum"),
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(label.cast("long")).alias("n_responses"),
    )


def collect_cells(logit_cells: DataFrame, n_values: int) -> LogitCells:
    """Logit cells of one field in memory: bounded by field values × cells."""
    names = ["field_value_id", "cell", "n_samples", "n_responses"]
    names += ["sum_weight", "sum_weight_responses", "sum_weight_logit"]
    table = logit_cells.select(*names).toArrow()
    return cells_from_columns({name: table[name].to_numpy() for name in names}, n_values)


def _score_cell(score: Column) -> Column:
    clipped = F.greatest(F.lit(PROBABILITY_LIMIT), F.least(F.lit(1 - PROBABILITY_LIMIT), score))
    return F.floor((F.log(clipped) - F.log1p(-clipped)) * F.lit(SCORE_CELLS_PER_LOGIT)).cast("int")


def _join_tercile(rows: DataFrame, test_cells: LogitCells) -> DataFrame:
    """Adds the tercile of the row's un-calibrated logit within its field value; cells are never split."""
    first, second = compute_tercile_starts(test_cells)
    ids = np.arange(test_cells.n_values, dtype=np.int32)
    starts = pa.table({"field_value_id": ids, "second_from": first, "third_from": second})
    bounds = F.broadcast(rows.sparkSession.createDataFrame(starts))
    cell = assign_cell(F.col("uncalibrated_logit"))
    tercile = (cell >= F.col("second_from")).cast("int") + (cell >= F.col("third_from")).cast("int")
    return rows.join(bounds, "field_value_id").withColumn("tercile", tercile)
