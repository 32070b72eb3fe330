"""Test rows with one score column per method → what AUC, Field-AUC and reliability are computed from.

One aggregation over the rows adds them up by (field value, method, cell of the method's own score). Field-AUC needs
these cells of every field value: too many for the driver. They are brought together by field value instead, and each
executor hands over one row per (field value, method). What is pooled over the values is bounded by methods × cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.cells.logit_cells import PROBABILITY_LIMIT
from adacalib.cells.score_cells import ScoreCells, count_score_cells
from adacalib.cells.value_aucs import ValueAucs, compute_value_aucs
from adacalib.schemas import id_column

_CELLS_AT_ONCE = 1_000_000
"""Score cells that a worker looks at in one go, besides those of one field value: some 100 MB of arrays."""

_SUMS = ("weight", "response", "score_sum", "n_samples", "n_responses")

_VALUE_AUCS = (
    "field_value_id int, method_index int, weight double, has_both_classes boolean, auc double, spread_1 double, "
    "spread_0 double, cell_error double, count_1 double, count_0 double"
)


def score_column(method: str) -> str:
    """Name of the column with a method's score."""
    return f"score__{method}"


def build_score_cells(
    rows: DataFrame, field: str, methods: Sequence[str], cells_per_logit: int, *, has_weights: bool = True
) -> DataFrame:
    """One row per (field value, method, cell of the method's own score) that has samples.

    Columns field_value_id, method_index, cell, weight, response, score_sum, n_samples, n_responses. The three keys are
    packed into one long, which Spark groups by faster.

    Args:
        rows: test samples with label, weight, the field's id and a score column per method.
        methods: numbered by their place, the method_index.
        cells_per_logit: see `score_cells.assign_score_cell`; decides how many cells there are.
        has_weights: without weights the weighted sums follow from the counts and are not added up a second time.

    Raises (when it is computed):
        A score that is missing or not in [0, 1].
    """
    n_cells, n_methods = count_score_cells(cells_per_logit), len(methods)
    # the cell is computed after the explosion: with it before, the generated code holds a logarithm per method and is
    # soon longer than what the JVM compiles
    scores = F.array(*[F.col(score_column(method)).cast("double") for method in methods])
    field_value_id = F.col(id_column(field)).cast("long").alias("field_value_id")
    weights = ["weight"] if has_weights else []
    exploded = rows.select(field_value_id, "label", *weights, F.posexplode(scores).alias("method_index", "score"))
    cell = _score_cell(F.col("score"), cells_per_logit) + F.lit(n_cells // 2)
    key = (F.col("field_value_id") * F.lit(n_methods) + F.col("method_index")) * F.lit(n_cells) + cell
    label, score = F.col("label"), F.col("score")
    counts = [F.count(F.lit(1)).alias("n_samples"), F.sum(label.cast("long")).alias("n_responses")]
    if has_weights:
        weight = F.col("weight")
        weighted = {"weight": F.sum(weight), "response": F.sum(weight * label), "score_sum": F.sum(weight * score)}
    else:
        weighted = {"score_sum": F.sum(score)}
    cells = exploded.groupBy(key.alias("key")).agg(*counts, *(sum_.alias(name) for name, sum_ in weighted.items()))
    if not has_weights:
        plain = {"weight": F.col("n_samples").cast("double"), "response": F.col("n_responses").cast("double")}
        cells = cells.withColumns(plain)
    owner = F.expr(f"key div {n_cells}")
    return cells.select(
        F.expr(f"key div {n_cells * n_methods}").cast("int").alias("field_value_id"),
        F.pmod(owner, F.lit(n_methods)).cast("int").alias("method_index"),
        (F.pmod("key", F.lit(n_cells)) - F.lit(n_cells // 2)).cast("int").alias("cell"),
        *_SUMS,
    )


def build_value_aucs(score_cells: DataFrame, n_methods: int) -> DataFrame:
    """One row per (field value with test samples, method): AUC and DeLong's spreads, see `value_aucs.ValueAucs`.

    All cells of one field value meet in one partition, in the order of the values, so that a worker holds no more than
    the cells of one value beside those at hand.

    Args:
        score_cells: `build_score_cells`.
    """
    gathered = score_cells.select("field_value_id", "method_index", "cell", *_SUMS)
    ordered = gathered.repartition("field_value_id").sortWithinPartitions("field_value_id")

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cells in _iterate_whole_values(batches):
            yield _describe_values(cells, n_methods)

    return ordered.mapInArrow(compute, _VALUE_AUCS)


def collect_value_aucs(score_cells: DataFrame, methods: Sequence[str]) -> dict[str, ValueAucs]:
    """`build_value_aucs` in memory, per method; entries sorted by field value id, so that averages repeat."""
    table = build_value_aucs(score_cells, len(methods)).toArrow()
    columns = {name: table[name].to_numpy() for name in table.column_names}
    method_index = columns.pop("method_index")
    columns["field_value_id"] = columns["field_value_id"].astype(np.int64)
    order = np.argsort(columns["field_value_id"], kind="stable")
    found = {}
    for index, method in enumerate(methods):
        own = order[method_index[order] == index]
        found[method] = ValueAucs(**{name: values[own] for name, values in columns.items()})
    return found


def collect_pooled_cells(score_cells: DataFrame, methods: Sequence[str]) -> dict[str, ScoreCells]:
    """Score cells of every method over all field values, in memory."""
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return _split_methods(score_cells.groupBy("method_index", "cell").agg(*sums).toArrow(), methods)


def collect_shown_cells(
    score_cells: DataFrame, methods: Sequence[str], field_value_ids: Sequence[int]
) -> dict[int, dict[str, ScoreCells]]:
    """Score cells of every method for a few field values, in memory: field value id → method → cells.

    Args:
        field_value_ids: a handful; a value without test samples has empty cells.
    """
    if not field_value_ids:
        return {}
    table = score_cells.filter(F.col("field_value_id").isin([int(value) for value in field_value_ids])).toArrow()
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


def _score_cell(score: Column, cells_per_logit: int) -> Column:
    """`score_cells.assign_score_cell` as a column; anything but a probability is refused."""
    clipped = F.greatest(F.lit(PROBABILITY_LIMIT), F.least(F.lit(1 - PROBABILITY_LIMIT), score))
    cell = F.floor(F.log(clipped / (1 - clipped)) * F.lit(cells_per_logit))
    found = F.coalesce(score.cast("string"), F.lit("missing"))
    refused = F.raise_error(
        F.concat(
            F.lit("a test row's score is "),
            found,
            F.lit(": each method gives each test row "),
            F.lit("a probability; look at the table or checkpoint that it comes from"),
        )
    )
    return F.when(score.between(0.0, 1.0), cell).otherwise(refused.cast("long"))


def _iterate_whole_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cells in portions of which none ends inside a field value, from cells sorted by field value."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= _CELLS_AT_ONCE:
            cells = pa.Table.from_batches(waiting)
            ids = cells["field_value_id"].to_numpy()
            # the last value may go on in the next batch
            start = int(np.searchsorted(ids, ids[-1]))
            if start:
                yield cells.slice(0, start)
            waiting = cells.slice(start).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting)


def _describe_values(cells: pa.Table, n_methods: int) -> pa.RecordBatch:
    columns = {name: cells[name].to_numpy() for name in ("cell", "weight", "response", "n_samples", "n_responses")}
    key = cells["field_value_id"].to_numpy().astype(np.int64) * n_methods + cells["method_index"].to_numpy()
    aucs = compute_value_aucs(key, **columns)
    described = {
        "field_value_id": (aucs.field_value_id // n_methods).astype(np.int32),
        "method_index": (aucs.field_value_id % n_methods).astype(np.int32),
        **{name: getattr(aucs, name) for name in ValueAucs.__dataclass_fields__ if name != "field_value_id"},
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in described.items()})
