"""Grouped sums of the test split → field_value_metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adacalib.cells.grouped_sums import GroupedSums, sum_by_key
from adacalib.cells.metrics import compute_field_value_rows


def build_field_value_metrics(
    field_values: DataFrame, field: str, sums: GroupedSums, methods: Sequence[str]
) -> DataFrame:
    """One row per (field value with test samples, method) of one field, with the raw value.

    Args:
        field_values: table of that name.
        sums: grouped sums of the field.
        methods: methods that the sums hold.
    """
    tables = []
    for method in methods:
        rows = compute_field_value_rows(sums, method)
        loss = sum_by_key(sums.field_value_id, sums.log_loss_sums[method], sums.n_values)
        tables.append(
            pa.table(
                {
                    "field_value_id": rows.field_value_id.astype(np.int32),
                    "method": pa.repeat(method, len(rows.field_value_id)),
                    "n_samples": rows.n_samples.astype(np.int64),
                    "n_responses": rows.n_responses.astype(np.int64),
                    "sum_weight": rows.weight,
                    "sum_weight_responses": rows.response,
                    "sum_weight_score": rows.score_sum,
                    "log_loss": loss[rows.field_value_id] / rows.weight,
                }
            )
        )
    names = field_values.filter(F.col("field") == field).select(
        "field", "field_value", "value_kind", "field_value_id", F.col("n_samples").alias("n_fit_samples")
    )
    return field_values.sparkSession.createDataFrame(pa.concat_tables(tables)).join(names, "field_value_id")
