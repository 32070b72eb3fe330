"""metrics, evaluation, tables and checkpoint of a run → report.html and figures/.

Reads  metrics.json, evaluation.json, status.json and compare.json (where there are), the samples' manifest,
       field_values (one row per field value), field_value_metrics (one row per field, field value and method),
       bin_statistics (one row per field value, candidate and bin), the unified checkpoint, the predictor's loss curve.
Writes report.html (one self-contained file) and figures/NAME.png, one per picture in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import expit

from adacalib import io
from adacalib.cells.functions import BinFunctions, interpolate
from adacalib.config import RunConfig
from adacalib.job_arguments import read_job_config
from adacalib.report.data import (
    ChosenBins,
    Curve,
    FieldValue,
    LearnedFunction,
    MethodSums,
    ReportData,
    name_field_value,
    pick_by_frequency,
)
from adacalib.report.page import draw_pictures, render_page

log = logging.getLogger("adacalib")

N_FUNCTIONS = 4

KEPT_FIGURES = ("compare_", "ablate_")
"""Pictures of other commands in figures/ begin so."""


class ReportInputMissing(ValueError):
    """A file that the report reads is not there; the message names the stage that writes it."""


def run(config: RunConfig) -> None:
    """Writes report.html and figures/ of a run; what stood there is replaced.

    Raises:
        ReportInputMissing: a file is missing or no JSON.
        TableMissing: a table is missing.
    """
    data = gather_data(config)
    pictures = draw_pictures(data)
    page = render_page(data, pictures)
    figures = config.run_dir / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for path in figures.iterdir():  # a picture that this run no longer has must not stay
        if path.is_file() and not path.name.startswith(KEPT_FIGURES):
            path.unlink()
    for picture in pictures:
        (figures / f"{picture.name}.png").write_bytes(picture.png)
    target = config.run_dir / "report.html"
    staging = target.with_name(".report.html.new")
    staging.write_text(page, encoding="utf-8")
    staging.replace(target)
    log.info("wrote %s: %d pictures", target, len(pictures))


def gather_data(config: RunConfig) -> ReportData:
    """Reads everything that the report shows; see `run` for the errors."""
    metrics = _read_json(config.run_dir / "metrics.json", "evaluate")
    evaluation = _read_json(config.run_dir / "evaluation.json", "evaluate")
    training = _read_json(config.run_dir / "unified" / "training.json", "train_calibrator")
    values = _rows_of_field(io.read_arrow(config, "field_values"), config.field)
    chosen = dict(enumerate(training.get("chosen_candidates") or ()))
    has_own_scores = config.has_own_scores
    curve = None if has_own_scores else _read_json(config.run_dir / "predictor" / "loss_curve.json", "train_predictor")
    status, comparison = config.run_dir / "status.json", config.run_dir / "compare.json"
    return ReportData(
        config=config,
        metrics=metrics,
        curves=[Curve(**entry) for entry in evaluation["reliability"]],
        level_drift=evaluation.get("level_drift"),
        labels={row["field_value_id"]: name_field_value(row["field_value"], row["value_kind"]) for row in values},
        field_values=_gather_field_values(config),
        functions=_gather_functions(config, values, chosen),
        chosen_bins=_gather_chosen_bins(config, values, chosen),
        input_counts=io.read_manifest(config, "samples"),
        training=training,
        predictor_curve=curve,
        status=_read_json(status, "prepare_samples") if status.is_file() else None,
        comparison=_read_json(comparison, "compare") if comparison.is_file() else None,
    )


def _read_json(path: Path, stage: str) -> Any:
    if not path.is_file():
        raise ReportInputMissing(f"{path} is not there; run `adacalib {stage}` first (or `run --from {stage}`)")
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ReportInputMissing(f"{path} is no JSON ({error}); run `adacalib {stage}` again") from error


def _rows_of_field(table: pa.Table, field: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["field"], field)).to_pylist()
    return rows


def _gather_field_values(config: RunConfig) -> list[FieldValue]:
    """Field values with test samples, the most frequent in train ∪ dev first."""
    by_id: dict[int, dict[str, dict[str, Any]]] = {}
    for row in _rows_of_field(io.read_arrow(config, "field_value_metrics"), config.field):
        by_id.setdefault(row["field_value_id"], {})[row["method"]] = row
    found = []
    for value, rows in by_id.items():
        first = next(iter(rows.values()))
        methods = {
            method: MethodSums(
                row["n_samples"],
                row["n_responses"],
                row["sum_weight"],
                row["sum_weight_responses"],
                row["sum_weight_score"],
                row["log_loss"],
            )
            for method, row in rows.items()
        }
        label = name_field_value(first["field_value"], first["value_kind"])
        found.append(FieldValue(value, label, first["n_fit_samples"], methods))
    return sorted(found, key=lambda v: (-v.n_fit_samples, v.field_value_id))


def _gather_functions(
    config: RunConfig, values: Sequence[Mapping[str, Any]], chosen: Mapping[int, int]
) -> list[LearnedFunction]:
    """Functions of a few field values of different frequency at the bounds of their bins."""
    from adacalib.model.calibrator import functions_of  # torch only when its turn comes
    from adacalib.model.unified import load_model

    calibrator = load_model(config.run_dir / "unified", config.field)[0].calibrator
    if calibrator is None:
        raise ReportInputMissing(f"{config.run_dir / 'unified'} holds no calibrator; run `adacalib train_calibrator`")
    functions = functions_of(calibrator)
    bins = _rows_of_field(io.read_arrow(config, "bin_statistics"), config.field)
    largest = max(row["n_bins_candidate"] for row in bins)
    by_id = {row["field_value_id"]: row for row in values}
    picked = pick_by_frequency({v: row["n_samples"] for v, row in by_id.items() if v > 0}, N_FUNCTIONS)
    shown = []
    for value in picked:
        own = [r for r in bins if r["field_value_id"] == value and r["n_bins_candidate"] == chosen.get(value, largest)]
        shown.append(_describe_function(functions, by_id[value], sorted(own, key=lambda row: row["bin_index"])))
    return shown


def _describe_function(
    functions: BinFunctions, value: Mapping[str, Any], bins: Sequence[Mapping[str, Any]]
) -> LearnedFunction:
    bounds = np.array([bins[0]["lower_bound"], *(row["upper_bound"] for row in bins)])
    ids = np.full(len(bounds), value["field_value_id"], np.int64)
    return LearnedFunction(
        label=name_field_value(value["field_value"], value["value_kind"]),
        n_samples=value["n_samples"],
        n_responses=value["n_responses"],
        uncalibrated=expit(bounds).tolist(),
        calibrated=expit(interpolate(functions, ids, bounds)).tolist(),
        bin_samples=[row["n_samples"] for row in bins],
        bin_rate=[row["response_rate"] for row in bins],
    )


def _gather_chosen_bins(
    config: RunConfig, values: Sequence[Mapping[str, Any]], chosen: Mapping[int, int]
) -> list[ChosenBins]:
    if len(config.n_bins_candidates) < 2:
        return []
    return [
        ChosenBins(row["n_responses"], chosen[row["field_value_id"]])
        for row in values
        if row["field_value_id"] > 0 and row["field_value_id"] in chosen
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point without the adacalib command: --config FILE, --set key=value any number of times."""
    run(read_job_config(__doc__, arguments))


if __name__ == "__main__":
    main()
