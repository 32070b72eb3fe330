"""The table that the benchmarks of Spark's passes read: scored samples of any number, as lean as a table can be.

One field whose values are Zipf (exponent 1), an un-calibrated logit around -3.5 with a standard deviation of 1.2, and a
label whose log-odds are off by what depends on the field value. Every row is a function of its number, so the table is
the same on any machine.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS_PER_FILE = 12_500_000
"""About 64 MB of Parquet."""

_UNIFORM_STEPS = 2**53


def make_scored_rows(
    spark: SparkSession, rows: int, field_values: int, *, head_share: float = 0.0, files: int | None = None
) -> DataFrame:
    """field_value_id_f (int, 1 … field_values), uncalibrated_logit (float), label (byte), weight and date.

    weight is 1 and date null throughout, as in a run without them.

    Args:
        head_share: share of the rows that one value has besides its own.
        files: number of partitions, and files where it is written; by default one per ROWS_PER_FILE rows.
    """
    n_files = files or max(2, math.ceil(rows / ROWS_PER_FILE))
    number = F.col("id")
    # ⌊(V + 1)^u⌋ is k with probability ln((k + 1)/k)/ln(V + 1): Zipf, without a table of shares
    zipf = F.least(F.floor(F.exp(draw_uniform(number, 1) * math.log(field_values + 1))), F.lit(field_values))
    value = F.when(draw_uniform(number, 2) < head_share, F.lit(1)).otherwise(zipf).cast("int")
    normal = F.sqrt(-2 * F.log(draw_uniform(number, 3))) * F.cos(
        2 * math.pi * draw_uniform(number, 4)
    )  # Box and Muller 1958
    logit = F.greatest(F.least(-3.5 + 1.2 * normal, F.lit(16.0)), F.lit(-16.0))
    shift = -0.5 + 0.8 * F.sin(value.cast("double"))
    label = draw_uniform(number, 5) < 1 / (1 + F.exp(-(logit + shift)))
    return spark.range(0, rows, 1, n_files).select(
        value.alias("field_value_id_f"),
        logit.cast("float").alias("uncalibrated_logit"),
        label.cast("byte").alias("label"),
        F.lit(1.0).alias("weight"),
        F.lit(None).cast("date").alias("date"),
    )


def keep_table(path: Path, make: Callable[[], DataFrame]) -> Path:
    """The table of a folder, made where it is not there, or not whole."""
    if not (path / "_SUCCESS").is_file():
        shutil.rmtree(path, ignore_errors=True)
        make().write.parquet(str(path))
    return path


def keep_scored_rows(
    spark: SparkSession,
    folder: Path,
    rows: int,
    field_values: int,
    *,
    head_share: float = 0.0,
    files: int | None = None,
) -> Path:
    """The table of `make_scored_rows` below a folder."""
    path = folder / f"{rows}-{field_values}-{head_share:g}-{files or 0}"
    return keep_table(path, lambda: make_scored_rows(spark, rows, field_values, head_share=head_share, files=files))


def make_field_values(spark: SparkSession, field_values: int) -> DataFrame:
    """The field_values table of field f that belongs to it, id 0 (unseen values) included."""
    number, is_value = F.col("id"), F.col("id") > 0
    return spark.range(0, field_values + 1).select(
        F.lit("f").alias("field"),
        F.when(is_value, number.cast("string")).alias("field_value"),
        F.when(is_value, "value").otherwise("unseen").alias("value_kind"),
        number.cast("int").alias("field_value_id"),
    )


def draw_uniform(number: Column, stream: int) -> Column:
    """Strictly between 0 and 1, a function of row number and stream."""
    steps = F.pmod(F.xxhash64(number, F.lit(stream)), F.lit(_UNIFORM_STEPS))
    return (steps.cast("double") + 0.5) / F.lit(float(_UNIFORM_STEPS))
