"""Does the global level drift? Logit cells of the days that calibrations are learned from, against the test days."""

from __future__ import annotations

from pyspark.sql import DataFrame

from adacalib.cells.level_drift import compare_levels
from adacalib.cells.logit_cells import LogitCells
from adacalib.config import RunConfig
from adacalib.stats.evaluation_sums import collect_cells
from adacalib.stats.logit_cells import build_logit_cells


def measure_level_drift(
    scored: DataFrame, field_values: DataFrame, config: RunConfig, test_cells: LogitCells, fit_cells: LogitCells
) -> dict[str, dict[str, float]] | None:
    """LogLoss and PCOC on test: un-calibrated, global curve on dev, global curve on train ∪ dev (unless fit_on: dev).

    Args:
        scored: the run's scored samples.
        test_cells, fit_cells: of the calibrated field, as `collect_cells` gives them.

    Returns:
        None where rows have no dates, or there is no dev.
    """
    if config.input.date is None or config.split.dev == 0:
        return None
    dev = scored.filter("split = 'dev'")
    cells = build_logit_cells(dev, field_values, config.field, has_weights=config.input.weight is not None)
    dev_cells = collect_cells(cells, fit_cells.n_values)
    fitted = {"none": None} | ({"dev": dev_cells} if len(dev_cells) else {})  # a run of one day has a window only
    if config.calibrator.fit_on == "train_and_dev":
        fitted["train_and_dev"] = fit_cells
    return compare_levels(test_cells, fitted)
