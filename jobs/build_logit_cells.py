"""scored_samples (train ∪ dev) → logit_cells.

Reads  scored_samples (one row per sample) and field_values (one row per field value); with `window` also the stored
       cells of earlier days.
Writes logit_cells (one row per date, field, field value and cell), for every field of the run. The
       fingerprint of the model behind the logits goes with the table. With `window` the cells of each of the run's
       days are stored besides, test days too, and logit_cells are those of the days before the test days.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import MixedTables, read_origin
from adacalib.stats.day_cells import build_window_cells, drop_ids
from adacalib.stats.logit_cells import build_logit_cells
from adacalib.window import Window, find_window, publish_days


def run(spark: SparkSession, config: RunConfig) -> None:
    origin = read_origin(config, ("scored_samples", "field_values"))
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    if config.window is None:
        cells = _build_cells(scored.filter(F.col("split").isin(*config.fit_splits)), values, config)
    else:
        days = find_window(scored, config)
        _refuse_changed_days(days, config)
        publish_days(drop_ids(_build_cells(scored, values, config)), config, origin["predictor_fingerprint"])
        cells = build_window_cells(days.read_all(spark), values, days.last, config.window.decay)
    io.write_table(
        cells, config, "logit_cells", schemas.LOGIT_CELLS, facts=origin | {"fit_on": config.calibrator.fit_on}
    )


def _build_cells(rows: DataFrame, values: DataFrame, config: RunConfig) -> DataFrame:
    parts = [
        build_logit_cells(rows, values, field, has_weights=config.input.weight is not None) for field in config.fields
    ]
    return reduce(DataFrame.unionByName, parts)


def _refuse_changed_days(days: Window, config: RunConfig) -> None:
    """The ids of the samples were given for the stored days as they were."""
    if days.digest != io.read_manifest(config, "samples")["window"]["digest"]:
        raise MixedTables(
            f"{days.folder}: a stored day from {days.first} to {days.last} was added or replaced since the samples "
            "were prepared; run from prepare_samples again"
        )


if __name__ == "__main__":
    io.run_job(run)
