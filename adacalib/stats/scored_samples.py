"""Samples → scored_samples (and calibrated_samples): what a model adds, per Arrow batch or as plain column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from adacalib import schemas

Scorer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def take_own_scores(samples: DataFrame, fields: Sequence[str]) -> DataFrame:
    """One row per sample: the user's own logit is the un-calibrated logit."""
    names = schemas.scored_samples(fields).fieldNames()
    return samples.withColumn("uncalibrated_logit", F.col("own_logit")).select(*names)


def score_batches(rows: DataFrame, scorer: Scorer, schema: StructType) -> DataFrame:
    """One row per sample: Arrow batches go through a scorer that returns batches of the schema's columns, in order."""
    return rows.mapInArrow(scorer, schema)
