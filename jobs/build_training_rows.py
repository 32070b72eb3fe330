"""scored_samples (train ∪ dev) → training_rows; without auxiliary network logit_cells → training_rows.

Reads  scored_samples (one row per sample), or logit_cells (one row per date, field, field value and cell).
Writes training_rows (one row per sample of train ∪ dev, or one to several per logit cell and label), in folders
       hold_out=0 and hold_out=1; several row groups per rank, each a random sample of the rows.
"""

from __future__ import annotations

import math

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats.training_rows import build_cell_rows, build_training_rows, find_first_held_out_day


def run(spark: SparkSession, config: RunConfig) -> None:
    source = "scored_samples" if config.has_auxiliary_network else "logit_cells"
    origin = read_origin(config, (source,))
    rows = _rows_of_samples(spark, config) if config.has_auxiliary_network else _rows_of_cells(spark, config)
    facts = origin | {"fit_on": config.calibrator.fit_on, "made_from": source}
    io.write_table(rows, config, "training_rows", schemas.TRAINING_ROWS, partition_by="hold_out", facts=facts)


def _rows_of_samples(spark: SparkSession, config: RunConfig) -> DataFrame:
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    rows, share = scored.filter(F.col("split").isin(*config.fit_splits)), config.training.hold_out_share
    return build_training_rows(
        rows,
        config.field,
        seed=config.seed,
        hold_out_share=share,
        n_files=_count_files(config, io.read_manifest(config, "samples")["n_good"], per_rank=4),
        first_held_out_day=find_first_held_out_day(rows, share) if config.split.by == "date" else None,
    )


def _rows_of_cells(spark: SparkSession, config: RunConfig) -> DataFrame:
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    n_cells = cells.filter(F.col("field") == config.field).select("field_value_id", "cell").distinct().count()
    # About two rows per cell. Few files, one per rank at least: a training passes over them many times, and opens them
    # every time.
    n_files = _count_files(config, 2 * n_cells, per_rank=1)
    return build_cell_rows(cells, config.field, seed=config.seed, n_files=n_files)


def _count_files(config: RunConfig, n_rows: int, per_rank: int) -> int:
    return max(per_rank * config.training.ranks, math.ceil(n_rows / config.training.rows_per_row_group))


if __name__ == "__main__":
    io.run_job(run)
