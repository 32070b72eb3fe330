"""Logit cells (or, as the reference path, rows) → bin_statistics: bounds and posteriors per field value and bin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adacalib.cells.bin_bounds import BinBounds, BinSums, compute_bin_bounds, sum_bins
from adacalib.cells.logit_cells import Ints, LogitCells, cells_from_columns
from adacalib.stats.approx_quantile import compute_approximate_bounds, sum_bins_of_rows

VALUES_PER_TASK = 20_000
"""Field values that one executor task computes bins for at a time: about 300 MB of cells and bounds at most."""

_CELL_SUMS = ("n_samples", "n_responses", "sum_weight", "sum_weight_responses", "sum_weight_logit")
_BINS = (
    "field_value_id int, n_bins_candidate int, n_bins int, bin_index int, lower_bound double, upper_bound double, "
    "n_samples long, n_responses long, sum_weight double, sum_weight_responses double, "
    "response_rate double, mean_logit double"
)


def compute_bin_statistics(
    logit_cells: DataFrame, field_values: DataFrame, field: str, candidates: tuple[int, ...]
) -> DataFrame:
    """One row per (field value, candidate, bin), and per bin of all values (id 0): exact counts from logit cells.

    Runs on the executors, VALUES_PER_TASK field values at a time; the driver sees only the global row's cells.
    """
    cells = logit_cells.filter(F.col("field") == field)
    sums = [F.sum(name).alias(name) for name in _CELL_SUMS]
    # at most 1,034 cells; they decide the bounds of id 0 and of every value with few cells
    whole = cells.groupBy("cell").agg(*sums, F.min("field_value_id").alias("first_id"))
    table = whole.withColumn("field_value_id", F.lit(0)).toArrow()
    pooled, first_id = _cells_of(table.drop_columns("first_id"), n_values=1), pc.min(table["first_id"]).as_py()
    task = F.floor(F.col("field_value_id") / F.lit(VALUES_PER_TASK)).alias("task")
    merged = cells.groupBy("field_value_id", "cell").agg(*sums)
    bins = merged.groupBy(task).applyInArrow(_bin_task(pooled, candidates, first_id), _BINS)
    return _name_values(bins, field_values, field)


def approximate_bin_statistics(
    scored: DataFrame, field_values: DataFrame, field: str, candidates: tuple[int, ...], accuracy: int
) -> DataFrame:
    """One row per (field value, candidate, bin): the same table from percentile_approx and a second pass over rows."""
    parts = []
    for n_bins in candidates:
        bounds = compute_approximate_bounds(scored, field, n_bins, accuracy).localCheckpoint()
        sums = sum_bins_of_rows(scored, bounds, field, n_bins)
        bins = bounds.select(
            "field_value_id",
            (F.size("bin_bounds") - 1).alias("n_bins"),
            F.posexplode(F.slice("bin_bounds", F.lit(1), F.size("bin_bounds") - 1)).alias("bin_index", "lower_bound"),
            F.get("bin_bounds", F.col("bin_index") + 1).alias("upper_bound"),
        )
        joined = bins.join(sums, ["field_value_id", "bin_index"], "left").fillna(0, list(_CELL_SUMS))
        parts.append(joined.withColumn("n_bins_candidate", F.lit(n_bins)))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    filled = F.col("n_samples") > 0
    rows = rows.withColumn("response_rate", F.when(filled, F.col("sum_weight_responses") / F.col("sum_weight")))
    rows = rows.withColumn("mean_logit", F.when(filled, F.col("sum_weight_logit") / F.col("sum_weight")))
    return _name_values(rows.drop("sum_weight_logit"), field_values, field)


def _name_values(bins: DataFrame, field_values: DataFrame, field: str) -> DataFrame:
    names = field_values.filter(F.col("field") == field).select("field", "field_value", "value_kind", "field_value_id")
    return bins.join(names, "field_value_id")


def _cells_of(table: pa.Table, n_values: int) -> LogitCells:
    return cells_from_columns({name: table[name].to_numpy() for name in table.column_names}, n_values)


def _bin_task(pooled: LogitCells, candidates: tuple[int, ...], first_id: int | None) -> Callable[[pa.Table], pa.Table]:
    def compute(table: pa.Table) -> pa.Table:
        ids = np.unique(table["field_value_id"].to_numpy())
        # ids are numbered anew from 1 within the task, so that its arrays hold only its own values
        local = {name: table[name].to_numpy() for name in ("cell", *_CELL_SUMS)}
        local["field_value_id"] = np.searchsorted(ids, table["field_value_id"].to_numpy()) + 1
        cells = cells_from_columns(local, n_values=len(ids) + 1)
        names = np.concatenate([[0], ids])
        rows = []
        for n_bins in candidates:
            bounds = compute_bin_bounds(cells, n_bins, pooled)
            # the global row is written once, by the task of the first value that has cells
            first = 0 if ids[0] == first_id else 1
            rows.append(_bin_rows(names, bounds, sum_bins(cells, bounds, pooled), n_bins, first))
        return pa.concat_tables(rows)

    return compute


def _bin_rows(names: Ints, bounds: BinBounds, sums: BinSums, n_bins: int, first: int) -> pa.Table:
    value, index = np.nonzero(np.arange(bounds.bin_bounds_VJ.shape[1] - 1) < bounds.n_bins_V[:, None])
    chosen = value >= first
    value, index = value[chosen], index[chosen]
    weight, response = sums.weight_VK[value, index], sums.response_VK[value, index]
    filled = weight > 0
    rate = np.divide(response, weight, out=np.zeros_like(weight), where=filled)
    return pa.table(
        {
            "field_value_id": pa.array(names[value], pa.int32()),
            "n_bins_candidate": pa.array(np.full(len(value), n_bins), pa.int32()),
            "n_bins": pa.array(bounds.n_bins_V[value], pa.int32()),
            "bin_index": pa.array(index, pa.int32()),
            "lower_bound": bounds.bin_bounds_VJ[value, index],
            "upper_bound": bounds.bin_bounds_VJ[value, index + 1],
            "n_samples": sums.n_samples_VK[value, index],
            "n_responses": sums.n_responses_VK[value, index],
            "sum_weight": weight,
            "sum_weight_responses": response,
            "response_rate": pa.array(rate, mask=~filled),
            "mean_logit": pa.array(sums.mean_logit_VK[value, index], mask=~filled),
        }
    )
