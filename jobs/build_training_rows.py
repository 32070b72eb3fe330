"""scored_samples (train ∪ dev) → training_rows.

Reads  scored_samples (one row per sample).
Writes training_rows (one row per sample of train ∪ dev), in folders hold_out=0 and hold_out=1; several row groups per
       rank, each a random sample of the rows.
"""

from __future__ import annotations

import math

from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats.training_rows import build_training_rows


def run(spark: SparkSession, config: RunConfig) -> None:
    origin = read_origin(config, ("scored_samples",))
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    n_rows = io.read_manifest(config, "samples")["n_good"]
    rows = build_training_rows(
        scored,
        config.field,
        n_folds=config.n_folds,
        seed=config.seed,
        hold_out_share=config.training.hold_out_share,
        n_files=max(4 * config.training.ranks, math.ceil(n_rows / config.training.rows_per_row_group)),
    )
    io.write_table(
        rows,
        config,
        "training_rows",
        schemas.TRAINING_ROWS,
        partition_by="hold_out",
        facts=origin,
    )


if __name__ == "__main__":
    io.run_job(run)
