"""Input rows → rejects, and their count per reason."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def build_rejects(input_rows: DataFrame) -> DataFrame:
    """One row per distinct faulty input row, with all its reasons and how often it occurs."""
    return (
        input_rows.filter(F.size("reasons") > 0)
        .groupBy(F.array_join("reasons", "; ").alias("reason"), F.col("raw_row").alias("row"))
        .agg(F.count(F.lit(1)).alias("n_rows"))
    )


def count_reasons(input_rows: DataFrame) -> DataFrame:
    """One row per reason: how many rows have it. A row with two faults counts under both."""
    return (
        input_rows.select(F.explode("reasons").alias("reason"))
        .groupBy("reason")
        .agg(F.count(F.lit(1)).alias("n_rows"))
        .orderBy("reason")
    )
