"""A run over a table of bare scored rows: the tables that its stages write, without those of samples.

Stages before the logit cells would take minutes at sizes where these take seconds.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from scored_rows import make_field_values

from adacalib import io, schemas
from adacalib.config import RunConfig, parse_config
from adacalib.manifest import MANIFEST
from adacalib.stats.bin_statistics import compute_bin_statistics
from adacalib.stats.logit_cells import build_logit_cells

FIELD = "f"


def configure(runs_dir: Path, name: str, rows_path: Path, *, has_network: bool = True) -> RunConfig:
    """A run on the rows of a folder, of one rank.

    Args:
        has_network: False switches the auxiliary network off, so that the calibrator trains on logit cells.
    """
    content = {
        "name": name,
        "runs_dir": str(runs_dir),
        "input": {"path": str(rows_path), "label": "label", "score": "1 / (1 + exp(-uncalibrated_logit))"},
        "fields": [FIELD],
        "training": {"ranks": 1},
        "bins": {"n_bins_candidates": [5, 10, 20]},  # of both modes
        "calibrator": {"auxiliary": {"enabled": has_network}},
    }
    return parse_config(content)


def write_samples_manifest(config: RunConfig, rows: int, field_values: int) -> None:
    """What is recorded of samples; they are not kept themselves."""
    manifest = {
        "input_fingerprint": f"lean-{rows}",
        "n_field_values": {FIELD: field_values},
        "n_good": rows,
        "n_auxiliary_features": 0,
        "auxiliary_category_counts": [],
        **_generation(config, rows),
    }
    io.write_json(io.table_path(config, "samples") / MANIFEST, manifest)


def write_cells(scored: DataFrame, config: RunConfig, rows: int, field_values: int) -> int:
    """logit_cells of all rows; returns their number."""
    values = make_field_values(scored.sparkSession, field_values)
    cells = build_logit_cells(scored, values, FIELD, has_weights=False)
    return io.write_table(cells, config, "logit_cells", schemas.LOGIT_CELLS, facts=_fit_facts(config, rows))


def write_bins(spark: SparkSession, config: RunConfig, rows: int, field_values: int) -> None:
    """bin_statistics of the cells."""
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS)
    values = make_field_values(spark, field_values)
    bins = compute_bin_statistics(cells, values, FIELD, config.n_bins_candidates)
    io.write_table(bins, config, "bin_statistics", schemas.BIN_STATISTICS, facts=_fit_facts(config, rows))


def _generation(config: RunConfig, rows: int) -> dict[str, object]:
    return {"generation": config.describe_generation(f"lean-{rows}")}


def _fit_facts(config: RunConfig, rows: int) -> dict[str, object]:
    return _generation(config, rows) | {"fit_on": config.calibrator.fit_on}
