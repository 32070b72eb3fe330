"""Scored samples → calibrated_samples by a calibrator without network: column expressions, no Python worker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib import schemas
from adacalib.cells.functions import BinFunctions, list_segments
from adacalib.cells.logit_cells import LOGIT_LIMIT, Floats
from adacalib.stats.segments import find_segment


def calibrate_by_functions(
    scored: DataFrame, functions: BinFunctions, fields: Sequence[str], parent_level_P: Floats | None = None
) -> DataFrame:
    """One row per scored sample: calibrated_logit and calibrated_score, equal to the torch forward pass up to rounding.

    The lines of all field values are broadcast: memory per executor, and once on the driver, is field values × bins.

    Args:
        scored: scored_samples.
        functions: of the first field, by dense id; all that is added to them is in them.
        fields: fields of the run, the calibrated one first.
        parent_level_P: log-odds that an unseen value gets from its parent, by dense parent id.

    Raises (when the rows are computed):
        An id that the functions, or the levels, do not know; a logit that is NaN.
    """
    field_id = schemas.id_column(fields[0])
    logit = F.greatest(F.lit(-LOGIT_LIMIT), F.least(F.lit(LOGIT_LIMIT), F.col("uncalibrated_logit").cast("double")))
    placed = scored.withColumn("logit", logit).join(_broadcast_segments(scored, functions, field_id), field_id, "left")
    placed = find_segment(placed, "logit", F.col("bound"), functions.bin_bounds_RJ.shape[1])
    calibrated = F.get("intercept", F.col("segment")) + F.get("slope", F.col("segment")) * F.col("logit")
    if parent_level_P is not None:
        placed = placed.join(_broadcast_levels(scored, parent_level_P), "parent_id", "left")
        calibrated = calibrated + F.when(F.col(field_id) == 0, F.col("parent_level")).otherwise(F.lit(0.0))
    refused = F.raise_error(_describe_row(field_id, functions.n_values, parent_level_P))
    checked = F.when(calibrated.isNull() | F.isnan("uncalibrated_logit"), refused).otherwise(calibrated)
    return (
        placed.withColumn("calibrated_logit", checked)
        .withColumn("calibrated_score", F.lit(1.0) / (F.lit(1.0) + F.exp(-F.col("calibrated_logit"))))
        .select(*schemas.calibrated_samples(fields).fieldNames())
    )


def _describe_row(field_id: str, n_values: int, parent_level_P: Floats | None) -> Column:
    names, known = [field_id, "uncalibrated_logit"], f"ids 0 (unseen) to {n_values - 1}"
    if parent_level_P is not None:
        names, known = [*names, "parent_id"], f"{known}, parent ids 0 (none) to {len(parent_level_P) - 1}"
    found = F.concat_ws(", ", *(F.concat(F.lit(f"{name} = "), F.col(name)) for name in names))
    cure = f"; the checkpoint knows {known}, and no NaN: where the tables are newer than it, run train_calibrator again"
    return F.concat(F.lit("a row with "), found, F.lit(cure))


def _broadcast_segments(rows: DataFrame, functions: BinFunctions, field_id: str) -> DataFrame:
    segments = list_segments(functions)
    columns = {"bound": segments.bound_VJ, "intercept": segments.intercept_VS, "slope": segments.slope_VS}
    lists = {name: pa.array(list(values), pa.list_(pa.float64())) for name, values in columns.items()}
    ids = pa.array(range(functions.n_values), pa.int32())
    return F.broadcast(rows.sparkSession.createDataFrame(pa.table({field_id: ids, **lists})))


def _broadcast_levels(rows: DataFrame, parent_level_P: Floats) -> DataFrame:
    levels = pa.table({"parent_id": pa.array(range(len(parent_level_P)), pa.int32()), "parent_level": parent_level_P})
    return F.broadcast(rows.sparkSession.createDataFrame(levels))
