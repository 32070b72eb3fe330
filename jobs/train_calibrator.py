"""training_rows + logit_cells + bin_statistics (+ predictor) → unified checkpoint; to be run on every rank.

    torchrun --standalone --nproc-per-node 2 -m jobs.train_calibrator --config FILE

Reads  training_rows (one row per sample of train ∪ dev; not read in robust mode without auxiliary network),
       logit_cells and bin_statistics of the calibrated field, field_values, the predictor where there is one.
Writes unified/: predictor and calibrator in one checkpoint, with what was learnt about the field.
"""

from __future__ import annotations

from collections.abc import Sequence

from adacalib.job_arguments import read_job_config
from adacalib.model.calibrator_training import train_calibrator


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains and publishes the unified checkpoint of a run."""
    train_calibrator(read_job_config(__doc__, arguments))


if __name__ == "__main__":
    main()
