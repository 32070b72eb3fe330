"""logit_cells → bin_statistics (or, with bins.method: approx_quantile, scored_samples → bin_statistics).

Reads  logit_cells (one row per date, field, field value, cell) and field_values; with approx_quantile
       scored_samples (one row per sample) instead of the cells.
Writes bin_statistics (one row per field value, candidate number of bins and bin) of the calibrated field; id 0 is the
       global row.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.manifest import read_origin
from adacalib.stats import bin_statistics


def run(spark: SparkSession, config: RunConfig) -> None:
    source = "logit_cells" if config.bins.method == "logit_cells" else "scored_samples"
    origin = read_origin(config, (source, "field_values"))
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    field, candidates = config.field, config.n_bins_candidates
    if config.bins.method == "logit_cells":
        cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
        bins = bin_statistics.compute_bin_statistics(cells, values, field, candidates)
    else:
        scored = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
        fit = scored.filter(F.col("split").isin(*config.fit_splits))
        bins = bin_statistics.approximate_bin_statistics(fit, values, field, candidates, config.bins.accuracy)
    facts = {"method": config.bins.method, "fit_on": config.calibrator.fit_on, **origin}
    io.write_table(bins, config, "bin_statistics", schemas.BIN_STATISTICS, facts=facts)


if __name__ == "__main__":
    io.run_job(run)
