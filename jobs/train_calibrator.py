"""training_rows + logit_cells + bin_statistics (+ predictor) → unified checkpoint; to be run on every rank.

    torchrun --standalone --nproc-per-node 2 -m jobs.train_calibrator --config FILE

Reads  training_rows (one row per sample of train ∪ dev; not read in robust mode without auxiliary network),
       logit_cells and bin_statistics of the calibrated field, field_values, the predictor where there is one.
Writes unified/: predictor and calibrator in one checkpoint, with what was learnt about the field.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from adacalib.config import read_config
from adacalib.model.calibrator_training import train_calibrator


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains and publishes the unified checkpoint of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="the run's YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides a key")
    options = parser.parse_args(arguments)
    train_calibrator(read_config(options.config, tuple(options.set)))


if __name__ == "__main__":
    main()
