"""samples (+ predictor) → scored_samples.

Reads  samples (one row per sample) and, without own scores, the predictor.
Writes scored_samples (one row per sample): uncalibrated_logit in place of the predictor's features.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats import scored_samples


def run(spark: SparkSession, config: RunConfig) -> None:
    origin = read_origin(config, ("samples",))
    samples = io.read_table(spark, config, "samples", schemas.samples(config.fields))
    schema = schemas.scored_samples(config.fields)
    if config.has_own_scores:
        scored, fingerprint = scored_samples.take_own_scores(samples, config.fields), config.input.score_version
    else:
        from adacalib.model.score import build_scorer  # torch only where a network scores

        scorer, predictor = build_scorer(config.run_dir / "predictor", config.field, schema.fieldNames())
        fingerprint = predictor.fingerprint
        read_origin(config, ("samples",), {"predictor": predictor.documents["origin"]})
        scored = scored_samples.score_batches(samples, scorer, schema)
    origin["predictor_fingerprint"] = fingerprint
    io.write_table(scored, config, "scored_samples", schema, partition_by="split", facts=origin)


if __name__ == "__main__":
    io.run_job(run)
