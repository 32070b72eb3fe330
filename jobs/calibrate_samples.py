"""scored_samples + unified checkpoint → calibrated_samples.

Reads  scored_samples (one row per sample; with a predictor: samples, so that features pass through both networks in
       one forward pass) and the unified checkpoint.
Writes calibrated_samples (one row per sample): calibrated_score beside uncalibrated_logit.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.model.score import build_scorer
from adacalib.stats import scored_samples


def run(spark: SparkSession, config: RunConfig) -> None:
    source = "scored_samples" if config.has_own_scores else "samples"
    if config.has_own_scores:
        rows = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    else:
        rows = io.read_table(spark, config, "samples", schemas.samples(config.fields))
    schema = schemas.calibrated_samples(config.fields)
    scorer, checkpoint = build_scorer(config.run_dir / "unified", config.field, schema.fieldNames())
    origin = read_origin(config, (source,), {"unified": checkpoint.documents["origin"]})
    calibrated = scored_samples.score_batches(rows, scorer, schema)
    facts = {"checkpoint_fingerprint": checkpoint.fingerprint, **origin}
    io.write_table(calibrated, config, "calibrated_samples", schema, partition_by="split", facts=facts)


if __name__ == "__main__":
    io.run_job(run)
