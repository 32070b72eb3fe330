"""Training rows that are logit cells: few and heavy, and without features."""

from __future__ import annotations

import math

from adacalib.config import RunConfig
from adacalib.manifest import find_table, read_manifest
from adacalib.model.row_files import RowFiles, repeat_rows

MIN_STEPS_ON_CELLS = 1500
"""About the steps that 800,000 rows make in 8 epochs of 4,096."""


def are_cells(config: RunConfig) -> bool:
    """Whether the run's training rows were made from logit cells.

    Raises:
        TableMissing: there are no training rows.
    """
    return bool(read_manifest(find_table(config, "training_rows")).get("made_from") == "logit_cells")


def repeat_cells(config: RunConfig, rows: RowFiles) -> tuple[RunConfig, RowFiles]:
    """Where training rows are logit cells: as many passes per epoch as make MIN_STEPS_ON_CELLS steps in all.

    One pass over cells is a handful of steps, and networks learn by steps. Batches are no larger than one pass, and the
    epochs are those of the configuration.

    Args:
        rows: the run's training rows.

    Returns:
        The configuration, with the batch size of its training, and the rows of one epoch; both as they are where the
        rows are samples, or none.
    """
    if not are_cells(config) or rows.rows == 0:
        return config, rows
    settings = config.calibrator
    batch_size = min(settings.auxiliary.choose_batch_size(rows.rows), rows.rows)
    passes = math.ceil(MIN_STEPS_ON_CELLS * batch_size / rows.rows / settings.epochs)
    auxiliary = settings.auxiliary.model_copy(update={"batch_size": batch_size})
    calibrator = settings.model_copy(update={"auxiliary": auxiliary})
    return config.model_copy(update={"calibrator": calibrator}), repeat_rows(rows, passes)
