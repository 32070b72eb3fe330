"""scored_samples (train ∪ dev) → logit_cells.

Reads  scored_samples (one row per sample) and field_values (one row per field value).
Writes logit_cells (one row per date, field, field value and cell), for every field of the run. The
       fingerprint of the model behind the logits goes with the table.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats.logit_cells import build_logit_cells


def run(spark: SparkSession, config: RunConfig) -> None:
    origin = read_origin(config, ("scored_samples", "field_values"))
    scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    fit = scored.filter(F.col("split").isin(*config.fit_splits))
    parts = [
        build_logit_cells(fit, values, field, has_weights=config.input.weight is not None) for field in config.fields
    ]
    cells = reduce(DataFrame.unionByName, parts)
    io.write_table(
        cells, config, "logit_cells", schemas.LOGIT_CELLS, facts=origin | {"fit_on": config.calibrator.fit_on}
    )


if __name__ == "__main__":
    io.run_job(run)
