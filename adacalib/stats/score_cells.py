"""Test rows with one score column per method → what AUC, Field-AUC and reliability are computed from.

Field-AUC needs a method's score cells of every field value: too many for the driver. Rows are brought together by
field value instead, all methods' scores side by side, and each executor hands over one row per (field value, method).
What is pooled over the values needs the cells themselves, which are bounded by methods × 16,506.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import PROBABILITY_LIMIT
from adacalib.cells.score_cells import (
    SCORE_CELLS_PER_LOGIT,
    KeyedScoreCells,
    ScoreCells,
    count_by_key,
    join_keyed,
)
from adacalib.cells.value_aucs import AucError, ValueAucs, compute_value_aucs
from adacalib.schemas import id_column

_SCORES_AT_ONCE = 1_000_000
"""Scores counted in one go: some 100 MB of arrays in the worker, whatever the number of methods."""

_VALUE_AUCS = (
    "field_value_id int, method_index int, weight double, has_both_classes boolean, auc double, spread_1 double, "
    "spread_0 double, cell_error double, count_1 double, count_0 double"
)


def score_column(method: str) -> str:
    """Name of the column with a method's score."""
    return f"score__{method}"


def build_value_aucs(rows: DataFrame, field: str, methods: Sequence[str]) -> DataFrame:
    """One row per (field value with test samples, method): AUC and DeLong's spreads, see `value_aucs.ValueAucs`.

    All rows of one field value meet in one partition, in the order of the values, so that a worker holds no more than
    the score cells of one value beside the rows at hand.

    Args:
        rows: test samples with label, weight, the field's id and a score column per method.
        methods: numbered by their place, the method_index.

    Raises (when it is collected):
        AucError: a row has no score of a method; as Spark's PythonException, with its text.
    """
    n_methods = len(methods)
    scores = F.array(*[F.col(score_column(method)).cast("double") for method in methods])
    gathered = rows.select(F.col(id_column(field)).alias("field_value_id"), "label", "weight", scores.alias("scores"))
    ordered = gathered.repartition("field_value_id").sortWithinPartitions("field_value_id")

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cells in _iterate_whole_values(batches, n_methods):
            yield _describe_values(cells, n_methods)

    return ordered.mapInArrow(compute, _VALUE_AUCS)


def collect_value_aucs(rows: DataFrame, field: str, methods: Sequence[str]) -> dict[str, ValueAucs]:
    """`build_value_aucs` in memory, per method; entries sorted by field value id, so that averages repeat."""
    table = build_value_aucs(rows, field, methods).toArrow()
    columns = {name: table[name].to_numpy() for name in table.column_names}
    method_index = columns.pop("method_index")
    columns["field_value_id"] = columns["field_value_id"].astype(np.int64)
    order = np.argsort(columns["field_value_id"], kind="stable")
    found = {}
    for index, method in enumerate(methods):
        own = order[method_index[order] == index]
        found[method] = ValueAucs(**{name: values[own] for name, values in columns.items()})
    return found


def count_score_cells(rows: DataFrame, methods: Sequence[str], field: str | None = None) -> DataFrame:
    """One row per (method, cell of the method's own score), or with a field per (method, field value, cell).

    Columns method_index, field_value_id (with a field), cell, weight, response, score_sum, n_samples, n_responses.

    Args:
        rows: test samples with label, weight and a score column per method.
        methods: numbered by their place, the method_index.
        field: with it cells are kept apart by its values: only for rows of few values.
    """
    keys = [] if field is None else [F.col(id_column(field)).alias("field_value_id")]
    # the cell is computed after the explosion: with it before, the generated code holds two logarithms per method and
    # is soon longer than what the JVM compiles (22 methods: 9 instead of 38 seconds)
    scores = F.array(*[F.col(score_column(method)).cast("double") for method in methods])
    exploded = rows.select(*keys, "label", "weight", F.posexplode(scores).alias("method_index", "score"))
    weight, label, score = F.col("weight"), F.col("label"), F.col("score")
    names = ["method_index", *(["field_value_id"] if keys else [])]
    return exploded.groupBy(*names, _score_cell(score).alias("cell")).agg(
        F.sum(weight).alias("weight"),
        F.sum(weight * label).alias("response"),
        F.sum(weight * score).alias("score_sum"),
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(label.cast("long")).alias("n_responses"),
    )


def collect_score_cells(rows: DataFrame, methods: Sequence[str]) -> dict[str, ScoreCells]:
    """Score cells of every method over all rows, in memory."""
    return _split_methods(count_score_cells(rows, methods).toArrow(), methods)


def collect_shown_cells(
    rows: DataFrame, methods: Sequence[str], field: str, field_value_ids: Sequence[int]
) -> dict[int, dict[str, ScoreCells]]:
    """Score cells of every method for a few field values, in memory: field value id → method → cells.

    Args:
        field_value_ids: a handful; a value without test samples has empty cells.
    """
    if not field_value_ids:
        return {}
    shown = rows.filter(F.col(id_column(field)).isin([int(value) for value in field_value_ids]))
    table = count_score_cells(shown, methods, field).toArrow()
    ids = table["field_value_id"].to_numpy()
    return {value: _split_methods(table.filter(pa.array(ids == value)), methods) for value in field_value_ids}


def _split_methods(table: pa.Table, methods: Sequence[str]) -> dict[str, ScoreCells]:
    columns = {name: table[name].to_numpy() for name in ScoreCells.__dataclass_fields__}
    columns["cell"] = columns["cell"].astype(np.int64)
    method_index = table["method_index"].to_numpy()
    order = np.argsort(columns["cell"], kind="stable")
    found = {}
    for index, method in enumerate(methods):
        own = order[method_index[order] == index]
        found[method] = ScoreCells(**{name: values[own] for name, values in columns.items()})
    return found


def _score_cell(score: Column) -> Column:
    """`score_cells.assign_score_cell` as a column."""
    clipped = F.greatest(F.lit(PROBABILITY_LIMIT), F.least(F.lit(1 - PROBABILITY_LIMIT), score))
    return F.floor((F.log(clipped) - F.log1p(-clipped)) * F.lit(SCORE_CELLS_PER_LOGIT)).cast("int")


def _iterate_whole_values(batches: Iterable[pa.RecordBatch], n_methods: int) -> Iterator[KeyedScoreCells]:
    """Score cells keyed by field value · n_methods + method, from rows sorted by field value; no value is split."""
    held: KeyedScoreCells | None = None
    for rows in _gather(batches, max(1, _SCORES_AT_ONCE // n_methods)):
        counted = _count(rows, n_methods)
        cells = counted if held is None else join_keyed(held, counted)
        # the last value may go on in the next rows
        is_open = cells.key // n_methods == cells.key[-1] // n_methods
        if not is_open.all():
            yield cells.select(~is_open)
        held = cells.select(is_open)
    if held is not None:
        yield held


def _gather(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """The batches, put together to n_rows rows or a little more."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= n_rows:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _count(rows: pa.Table, n_methods: int) -> KeyedScoreCells:
    first_key = rows["field_value_id"].to_numpy().astype(np.int64) * n_methods
    scores = rows["scores"].combine_chunks().flatten()
    if scores.null_count:
        raise AucError(f"{scores.null_count} of {len(scores)} scores missing: each method scores each test row")
    return count_by_key(
        (first_key[:, None] + np.arange(n_methods)).ravel(),
        scores.to_numpy(),
        np.repeat(rows["weight"].to_numpy(), n_methods),
        np.repeat(rows["label"].to_numpy().astype(np.int64), n_methods),
    )


def _describe_values(cells: KeyedScoreCells, n_methods: int) -> pa.RecordBatch:
    aucs = compute_value_aucs(cells.key, cells.cell, cells.weight, cells.response, cells.n_samples, cells.n_responses)
    columns = {
        "field_value_id": (aucs.field_value_id // n_methods).astype(np.int32),
        "method_index": (aucs.field_value_id % n_methods).astype(np.int32),
        **{name: getattr(aucs, name) for name in ValueAucs.__dataclass_fields__ if name != "field_value_id"},
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
