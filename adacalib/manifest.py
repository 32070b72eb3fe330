"""The manifest beside a table: what its readers must know besides its rows. Plain JSON; imports nothing of ours.

`_manifest.json` is written last, so a folder without one is no table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "_manifest.json"
"""Its key `rows` is the number of rows written."""

_WRITTEN_BY = {
    "samples": "prepare_samples",
    "field_values": "prepare_samples",
    "feature_encodings": "prepare_samples",
    "rejects": "prepare_samples",
    "scored_samples": "score_samples",
    "logit_cells": "build_logit_cells",
    "bin_statistics": "compute_bin_statistics",
    "training_rows": "build_training_rows",
    "calibrated_samples": "calibrate_samples",
    "field_value_metrics": "evaluate",
}


class TableMissing(ValueError):
    """A table that is read is not there, or not whole; the message names the stage that writes it."""


class MixedPredictors(ValueError):
    """Tables of one run come from scores of different predictors."""


def read_manifest(table: str | Path) -> dict[str, Any]:
    """The manifest of a table's folder.

    Raises:
        TableMissing: there is none, or it is no JSON object.
    """
    table = Path(table)
    stage = _WRITTEN_BY.get(table.name, "the stage that writes it")
    try:
        manifest = json.loads((table / MANIFEST).read_text())
    except FileNotFoundError as error:
        raise TableMissing(
            f"{table}: table {table.name} is not there; run `adacalib {stage}` first (or `run --from {stage}`)"
        ) from error
    except ValueError as error:
        raise TableMissing(f"{table / MANIFEST}: not valid JSON ({error}); run `adacalib {stage}` again") from error
    if not isinstance(manifest, dict):
        raise TableMissing(f"{table / MANIFEST}: expected a JSON object; run `adacalib {stage}` again")
    return manifest


def check_one_predictor(fingerprints: Mapping[str, str], run_dir: str | Path) -> str:
    """The predictor's fingerprint, if all have the same.

    Args:
        fingerprints: name of a table or artifact → fingerprint of the predictor behind it; at least one.
        run_dir: the run, for the message.

    Raises:
        MixedPredictors: they differ.
    """
    if len(set(fingerprints.values())) > 1:
        listed = ", ".join(f"{name} from {fingerprint}" for name, fingerprint in fingerprints.items())
        raise MixedPredictors(
            f"{run_dir}: these do not come from one predictor ({listed}); run from score_samples again"
        )
    return next(iter(fingerprints.values()))
