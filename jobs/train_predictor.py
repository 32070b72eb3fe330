"""Trains the un-calibrated predictor on split train; to be run on every rank.

    torchrun --standalone --nproc-per-node 2 -m jobs.train_predictor --config FILE

Reads:
    samples: one row per sample (label, weight, predictor_features, predictor_category_ids).
Writes:
    predictor/: an artifact, with `predictor.json` (hyper-parameters) and `loss_curve.json` (held-out: split dev).
"""

from __future__ import annotations

from collections.abc import Sequence

from adacalib.job_arguments import read_job_config
from adacalib.model.predictor_training import train_predictor


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains and publishes the predictor of a run.

    Args:
        arguments: `--config FILE`, and `--set key=value` any number of times; the command line's by default.
    """
    train_predictor(read_job_config(__doc__, arguments))


if __name__ == "__main__":
    main()
