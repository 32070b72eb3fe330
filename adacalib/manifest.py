"""The manifest beside a table: what its readers must know besides its rows, and whether tables belong together.

`_manifest.json` is written last, so a folder without one is no table. Two of its keys go from table to table:
`generation` (input and configuration that the samples were made from) and `predictor_fingerprint` (the model behind
the un-calibrated logits). Tables that differ in them are never read together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adacalib.config import RunConfig

MANIFEST = "_manifest.json"
"""Its key `rows` is the number of rows written."""

_WRITTEN_BY = {
    "samples": "prepare_samples",
    "field_values": "prepare_samples",
    "field_value_parents": "prepare_samples",
    "feature_encodings": "prepare_samples",
    "rejects": "prepare_samples",
    "scored_samples": "score_samples",
    "logit_cells": "build_logit_cells",
    "bin_statistics": "compute_bin_statistics",
    "training_rows": "build_training_rows",
    "calibrated_samples": "calibrate_samples",
    "field_value_metrics": "evaluate",
}

_LINKS = {
    "generation": ("one input and configuration", "prepare_samples"),
    "predictor_fingerprint": ("one predictor", "score_samples"),
}


class TableMissing(ValueError):
    """A table that is read is not there, or not whole; the message names the stage that writes it."""


class MixedTables(ValueError):
    """Tables of one run do not belong together, or not to this configuration."""


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


def find_table(config: RunConfig, table: str) -> Path:
    """The folder to read a table from: the run's own where it is there, else that of `inputs_from`."""
    own = config.run_dir / "tables" / table
    return own if (own / MANIFEST).is_file() else config.inputs_dir / "tables" / table


def read_origin(
    config: RunConfig, tables: Sequence[str], artifacts: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, str]:
    """Where tables that are read together come from: their generation and, from scored_samples on, their predictor.

    Args:
        config: the run; its samples must have been made with the same input, fields, features, split and seed.
        tables: names of the tables that a stage reads.
        artifacts: name → origin of a model that is read beside them.

    Returns:
        What the stage's own outputs are to carry: `generation` and, where the tables have it, `predictor_fingerprint`.

    Raises:
        TableMissing: a table is not there.
        MixedTables: they do not belong together, or were made with another configuration.
    """
    found: dict[str, Mapping[str, Any]] = {name: read_manifest(find_table(config, name)) for name in tables}
    found |= artifacts or {}
    fit_on = config.calibrator.fit_on
    if other := [name for name, facts in found.items() if facts.get("fit_on", fit_on) != fit_on]:
        raise MixedTables(
            f"{config.run_dir}: {', '.join(other)} made with another calibrator.fit_on than {fit_on}; run from "
            "build_logit_cells again"
        )
    origin = {}
    for key, (what, stage) in _LINKS.items():
        values = {name: facts[key] for name, facts in found.items() if key in facts}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name} from {value}" for name, value in values.items())
            raise MixedTables(f"{config.inputs_dir}: not from {what} ({listed}); run from {stage} again")
        if values:
            origin[key] = str(next(iter(values.values())))
    samples = read_manifest(find_table(config, "samples"))
    if origin.get("generation") != config.describe_generation(samples["input_fingerprint"]):
        raise MixedTables(
            f"{config.inputs_dir}: its tables were made with another input, fields, features, split or seed than this "
            "configuration has; run from prepare_samples again, or under another name"
        )
    return origin
