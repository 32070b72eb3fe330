"""Scored samples: own scores as a column, a model's by Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import schemas
from adacalib.stats.scored_samples import score_batches, take_own_scores
from tests.assert_table import collect_rows
from tests.stats.small_samples import draw_samples, make_samples

SCHEMA = schemas.scored_samples(["f"])


def test_own_logit_becomes_the_uncalibrated_one(spark: SparkSession) -> None:
    drawn = draw_samples(20)
    samples = make_samples(spark, drawn).withColumnRenamed("uncalibrated_logit", "own_logit").withColumns(
        {
            "row_key": F.lit(None).cast("string"),
            "parent_id": F.lit(3),
            "true_probability": F.col("own_logit") / F.lit(8.0),
            "predictor_features": F.array().cast("array<float>"),
        }
    )  # fmt: skip
    scored = take_own_scores(samples, ["f"])
    schemas.check_schema(scored.schema, SCHEMA, "scored_samples")
    found = {row["sample_id"]: row["uncalibrated_logit"] for row in collect_rows(scored)}
    assert found == dict(zip(drawn["sample_id"], map(float, drawn["uncalibrated_logit"]), strict=True))
    assert all(row["true_probability"] == row["uncalibrated_logit"] / 8 for row in collect_rows(scored))
    assert {row["parent_id"] for row in collect_rows(scored)} == {3}


def test_batches_pass_through_the_scorer_once(spark: SparkSession) -> None:
    # nested: a nested function travels to the workers by value
    def double(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            doubled = pc.multiply(batch["uncalibrated_logit"], pa.scalar(2, pa.float32()))
            yield pa.RecordBatch.from_arrays([batch["sample_id"], doubled], names=["sample_id", "uncalibrated_logit"])

    drawn = draw_samples(50)
    rows = make_samples(spark, drawn, 3)
    schema = rows.select("sample_id", "uncalibrated_logit").schema
    scored = collect_rows(score_batches(rows, double, schema), ["sample_id"])
    assert [row["uncalibrated_logit"] for row in scored] == [2 * float(s) for s in drawn["uncalibrated_logit"]]


def test_scorers_error_reaches_the_caller(spark: SparkSession) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("the checkpoint was replaced")
        yield from batches

    rows = make_samples(spark, draw_samples(5))
    with pytest.raises(PythonException, match="the checkpoint was replaced"):
        score_batches(rows, fail, rows.schema).collect()
