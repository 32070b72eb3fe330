"""A small world for the tests of the calibrator: rows drawn, and the tables that a training reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from adacalib.cells.bin_bounds import compute_bin_bounds, sum_bins
from adacalib.cells.logit_cells import LogitCells, merge_cells
from adacalib.config import RunConfig, parse_config
from tests.small_runs import merge

N_FIELD_VALUES = 6
FINGERPRINT = "v1"
LEVEL = np.array([0.0, 0.8, -0.9, 0.5, -0.4, 1.1, -1.2])
CATEGORY_EFFECT = np.array([0.0, 0.9, -0.7])

Rows = dict[str, np.ndarray[Any, Any]]


def make_config(folder: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Own scores, field `shop`, two numbers and one category; the run in folder/runs/w."""
    base = {
        "name": "w",
        "runs_dir": str(folder / "runs"),
        "input": {"path": "unused", "label": "label", "score": "score", "score_version": FINGERPRINT},
        "fields": ["shop"],
        "features": {"numeric": ["price", "age"], "categorical": ["device"]},
        "calibrator": {
            "epochs": 2,
            "learning_rate": 0.01,
            "auxiliary": {"hidden": [16], "epochs": 3, "batch_size": 256, "learning_rate": 0.01},
        },
        "training": {"collective_timeout_seconds": 60},
    }
    return parse_config(merge(base, changes or {}))


def draw_rows(n_rows: int = 4000, seed: int = 3, *, effect: float = 1.0, hold_out_share: float = 0.1) -> Rows:
    """Rows whose label depends on the score, on the field value's level, and on features that the score ignores."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, N_FIELD_VALUES + 1)
    ids = 1 + rng.choice(N_FIELD_VALUES, n_rows, p=share / share.sum())
    logit = np.float32(rng.normal(-1, 1.2, n_rows))
    features = np.float32(rng.normal(size=(n_rows, 2)))
    category = rng.integers(1, 3, (n_rows, 1))
    eta = 0.3 + 0.8 * logit + effect * LEVEL[ids] + 0.9 * features[:, 0] + CATEGORY_EFFECT[category[:, 0]]
    return {
        "label": (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype(np.int8),
        "weight": rng.choice([0.5, 1.0, 1.5], n_rows),
        "field_value_id": ids.astype(np.int32),
        "uncalibrated_logit": logit,
        "auxiliary_features": features,
        "auxiliary_category_ids": category.astype(np.int32),
        "hold_out": (rng.random(n_rows) < hold_out_share).astype(np.int32),
    }


def cells_of(rows: Rows, n_values: int = N_FIELD_VALUES + 1) -> LogitCells:
    """The logit cells of rows."""
    logit, weight = rows["uncalibrated_logit"].astype(float), rows["weight"]
    return merge_cells(
        rows["field_value_id"].astype(np.int64),
        np.floor(32 * logit).astype(np.int64),
        weight,
        weight * rows["label"],
        weight * logit,
        np.ones(len(logit), np.int64),
        rows["label"].astype(np.int64),
        n_values,
    )


def cell_columns(rows: Rows) -> Rows:
    """Columns of the logit_cells table, one row per sample (equal cells are added up by whoever reads them)."""
    logit, weight = rows["uncalibrated_logit"].astype(float), rows["weight"]
    return {
        "field_value_id": rows["field_value_id"],
        "cell": np.floor(32 * logit).astype(np.int32),
        "n_samples": np.ones(len(logit), np.int64),
        "n_responses": rows["label"].astype(np.int64),
        "sum_weight": weight,
        "sum_weight_responses": weight * rows["label"],
        "sum_weight_logit": weight * logit,
    }


def cell_rows(rows: Rows) -> Rows:
    """Columns of training_rows made from logit cells: one row per cell and label, in no order, without features."""
    cells = cells_of(rows)
    parts = []
    for label, n, weight in (
        (1, cells.n_responses, cells.response),
        (0, cells.n_samples - cells.n_responses, cells.weight - cells.response),
    ):
        parts.append(
            {
                "label": np.full(len(cells), label, np.int8)[n > 0],
                "weight": weight[n > 0],
                "field_value_id": cells.field_value_id[n > 0].astype(np.int32),
                "uncalibrated_logit": cells.logit[n > 0].astype(np.float32),
            }
        )
    count = sum(len(part["label"]) for part in parts)
    order = np.random.default_rng(1).permutation(count)
    found = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
    return found | {
        "auxiliary_features": np.zeros((count, 0), np.float32),
        "auxiliary_category_ids": np.zeros((count, 0), np.int32),
        "hold_out": np.zeros(count, np.int32),
    }


def bin_columns(cells: LogitCells, candidates: tuple[int, ...]) -> Rows:
    """Columns of the bin_statistics table; the mean logit of an empty bin is NaN."""
    parts = []
    for n_bins in candidates:
        bounds = compute_bin_bounds(cells, n_bins)
        sums = sum_bins(cells, bounds)
        value, index = np.nonzero(np.arange(n_bins) < bounds.n_bins_V[:, None])
        weight = sums.weight_VK[value, index]
        parts.append(
            {
                "field_value_id": value,
                "n_bins_candidate": np.full(len(value), n_bins),
                "n_bins": bounds.n_bins_V[value],
                "bin_index": index,
                "lower_bound": bounds.bin_bounds_VJ[value, index],
                "upper_bound": bounds.bin_bounds_VJ[value, index + 1],
                "sum_weight": weight,
                "sum_weight_responses": sums.response_VK[value, index],
                "mean_logit": np.where(weight > 0, sums.mean_logit_VK[value, index], np.nan),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_world(config: RunConfig, rows: Rows, *, rows_of_cells: bool = False, days: np.ndarray | None = None) -> None:
    """Writes the tables that `train_calibrator` reads; on demand with training rows made from logit cells, or days."""
    tables = config.run_dir / "tables"
    manifest = {
        "input_fingerprint": "world",
        "generation": config.describe_generation("world"),
        "n_field_values": {"shop": N_FIELD_VALUES},
        "n_auxiliary_features": 2,
        "auxiliary_category_counts": [len(CATEGORY_EFFECT)],
    }
    (tables / "samples").mkdir(parents=True)
    (tables / "samples" / "_manifest.json").write_text(json.dumps(manifest))
    date = pa.nulls(len(rows["label"]), pa.date32()) if days is None else pa.array(days, pa.int32()).cast(pa.date32())
    write_table(tables / "logit_cells", {"part-0.parquet": _with_field(cell_columns(rows) | {"date": date})}, config)
    bins = bin_columns(cells_of(rows), config.n_bins_candidates)
    write_table(tables / "bin_statistics", {"part-0.parquet": _with_field(bins)}, config)
    training_rows = cell_rows(rows) if rows_of_cells else rows
    files = {}
    for part in (0, 1):
        chosen = np.flatnonzero(training_rows["hold_out"] == part)
        if len(chosen):
            own = {name: values[chosen] for name, values in training_rows.items()}
            files[f"hold_out={part}/part-0.parquet"] = arrow_rows(own)
    made_from = "logit_cells" if rows_of_cells else "scored_samples"
    write_table(tables / "training_rows", files, config, facts={"made_from": made_from})


def arrow_rows(rows: Rows) -> pa.Table:
    """Rows as Spark writes training_rows, the hold_out column aside, which is in the folder's name."""
    columns = {name: values for name, values in rows.items() if name != "hold_out"}
    for name, kind in (("auxiliary_features", pa.float32()), ("auxiliary_category_ids", pa.int32())):
        columns[name] = pa.array(list(rows[name]), pa.list_(kind))
    return pa.table(columns)


def write_table(
    table: Path,
    files: Mapping[str, pa.Table],
    config: RunConfig | None = None,
    fingerprint: str = FINGERPRINT,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Writes Parquet files and their manifest, with further facts in it."""
    table.mkdir(parents=True)
    for name, content in files.items():
        (table / name).parent.mkdir(exist_ok=True)
        pq.write_table(content, table / name, row_group_size=1000)
    manifest = {"rows": sum(map(len, files.values())), "predictor_fingerprint": fingerprint, **(facts or {})}
    if config is not None:
        manifest["generation"] = config.describe_generation("world")
    (table / "_manifest.json").write_text(json.dumps(manifest))


def _with_field(columns: Rows) -> pa.Table:
    """With the rows of another field, whose ids and cells are nonsense: nobody may read them."""
    own = pa.table({"field": ["shop"] * len(next(iter(columns.values()))), **columns})
    other = own.slice(0, 3).set_column(0, "field", pa.array(["town"] * min(3, len(own))))
    return pa.concat_tables([own, other.set_column(1, "field_value_id", pa.array([999] * len(other), own[1].type))])
