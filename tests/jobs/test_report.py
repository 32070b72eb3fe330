"""The report job on a tiny run folder made by hand: what it reads, what it writes, what it says is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.functions import build_functions
from adacalib.config import RunConfig
from adacalib.manifest import TableMissing
from adacalib.model.calibrator import Calibrator
from adacalib.model.unified import UnifiedModel, publish_unified
from adacalib.report.data import METHODS
from jobs import report
from jobs.report import ReportInputMissing, gather_data
from tests.report.small_comparison import make_comparison
from tests.report.small_report import make_config, make_data

VALUES = [(0, None, "unseen", 0), (1, "", "value", 300), (2, None, "null", 30), (3, "<i>", "value", 3)]
BOUNDS = [-2.0, -1.0, 0.5]


def write_table(run_dir: Path, table: str, rows: list[dict[str, Any]], **manifest: Any) -> None:
    folder = run_dir / "tables" / table
    folder.mkdir(parents=True)
    half = len(rows) // 2
    for name, part in (("a", rows[:half]), ("b", rows[half:])):
        pq.write_table(pa.Table.from_pylist(part, pa.Table.from_pylist(rows).schema), folder / f"{name}.parquet")
    (folder / "_manifest.json").write_text(json.dumps({"table": table, "rows": len(rows), **manifest}))


def write_checkpoint(config: RunConfig, **training: Any) -> None:
    """Functions with two bins: calibrated logit = un-calibrated + 1 for id 1, as they are for the others."""
    bounds = np.tile(BOUNDS, (4, 1))
    shift = np.array([0.0, 1.0, 0.0, 0.0])
    functions = build_functions(BinBounds(bounds, np.full(4, 2)), bounds)
    model = UnifiedModel(None, Calibrator(functions, shift, 0.0, None), config.field)
    publish_unified(config.run_dir / "unified", model, {}, {"training": {"mode": "robust", **training}})


def make_bins(candidate: int, value: int) -> list[dict[str, Any]]:
    name = {"field": "f", "field_value_id": value, "n_bins_candidate": candidate}
    if candidate == 1:
        return [name | {"bin_index": 0, "lower_bound": -2.0, "upper_bound": 0.5, "n_samples": 9, "response_rate": 0.5}]
    return [
        name | {"bin_index": 1, "lower_bound": -1.0, "upper_bound": 0.5, "n_samples": 0, "response_rate": None},
        name | {"bin_index": 0, "lower_bound": -2.0, "upper_bound": -1.0, "n_samples": 9, "response_rate": 0.25},
    ]


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A finished run with own scores: one field calibrated, one more evaluated."""
    config = make_config(
        runs_dir=str(tmp_path),
        input={"path": "t.parquet", "label": "y", "score": "s"},
        features={},
        bins={"n_bins_candidates": [1, 2]},
    )
    data = make_data()
    run_dir = config.run_dir
    run_dir.mkdir()
    curves = [
        {**vars(curve), "mean_score": list(curve.mean_score)} for curve in data.curves if curve.field_value_id != 2
    ]
    write = lambda name, content: (run_dir / name).write_text(json.dumps(content))  # noqa: E731
    write("metrics.json", dict(data.metrics))
    write("evaluation.json", {"reliability": curves, "level_drift": {"none": {"log_loss": 0.5, "pcoc": 1.0}}})
    write("status.json", dict(data.status or {}))
    write_table(run_dir, "samples", [{"sample_id": "a"}], **{k: v for k, v in data.input_counts.items() if k != "rows"})
    names = ("field_value_id", "field_value", "value_kind", "n_samples")
    values = [dict(zip(names, row, strict=True)) | {"field": "f", "n_responses": row[3] // 3} for row in VALUES]
    other = {"field": "g", "field_value_id": 1, "field_value": "of g", "value_kind": "value", "n_samples": 5}
    write_table(run_dir, "field_values", [*values, other | {"n_responses": 1}])
    sums = {"n_samples": 10, "n_responses": 4, "sum_weight": 10.0, "sum_weight_responses": 4.0, "log_loss": 0.6}
    write_table(
        run_dir,
        "field_value_metrics",
        [
            {k: row[k] for k in ("field", "field_value_id", "field_value", "value_kind")}
            | sums
            | {
                "n_fit_samples": row["n_samples"],
                "method": method,
                "sum_weight_score": 5.0 if method == "adacalib" else 7,
            }
            for row in (*reversed(values[1:]), other)
            for method in METHODS
        ],
    )
    write_table(run_dir, "bin_statistics", [row for value in range(4) for c in (1, 2) for row in make_bins(c, value)])
    write_checkpoint(config, chosen_candidates=[2, 2, 1, 2])
    return config


def test_report_and_figures_are_written_and_the_same_again(config: RunConfig) -> None:
    stale = config.run_dir / "figures" / "stale.png"
    stale.parent.mkdir()
    stale.write_bytes(b"old")
    report.run(config)
    page = (config.run_dir / "report.html").read_bytes()
    figures = {path.name: path.read_bytes() for path in (config.run_dir / "figures").iterdir()}
    assert set(figures) == {
        "field_rce.png",
        "reliability.png",
        "reliability_field_values.png",
        "functions.png",
        "chosen_bins.png",
        "largest_residuals.png",
        "pcoc.png",
    }
    text = page.decode()
    assert "(empty)" in text and "(null)" in text and "&lt;i&gt;" in text and "<i>" not in text
    report.run(config)
    assert (config.run_dir / "report.html").read_bytes() == page
    assert not list(config.run_dir.glob(".report*"))


def test_comparison_is_shown_and_its_pictures_stay(config: RunConfig) -> None:
    figures = config.run_dir / "figures"
    figures.mkdir()
    for name in ("compare_truth.png", "ablate_robust.png", "stale.png"):
        (figures / name).write_bytes(b"old")
    report.run(config)
    assert 'id="comparison"' not in (config.run_dir / "report.html").read_text()
    (config.run_dir / "compare.json").write_text(json.dumps(make_comparison()))
    report.run(config)
    page = (config.run_dir / "report.html").read_text()
    assert 'id="comparison"' in page and "ridge Platt per value" in page and 'id="compare_methods"' in page
    names = {path.name for path in figures.iterdir()}
    assert {"compare_truth.png", "ablate_robust.png", "compare_methods.png"} < names and "stale.png" not in names
    (config.run_dir / "compare.json").write_text("{")
    with pytest.raises(ReportInputMissing, match=r"compare\.json is no JSON .*run `adacalib compare` again"):
        report.run(config)


def test_field_values_of_the_calibrated_field_most_frequent_first(config: RunConfig) -> None:
    data = gather_data(config)
    assert [(v.field_value_id, v.label, v.n_fit_samples) for v in data.field_values] == [
        (1, "(empty)", 300),
        (2, "(null)", 30),
        (3, "<i>", 3),
    ]
    assert data.labels == {0: "(unseen)", 1: "(empty)", 2: "(null)", 3: "<i>"}
    assert data.field_values[0].methods["adacalib"].pcoc == 5 / 4
    assert data.predictor_curve is None and data.input_counts["rows"] == 1


def test_functions_are_taken_at_the_bounds_of_the_chosen_bins(config: RunConfig) -> None:
    first, second, _ = gather_data(config).functions
    # id 1: two bins, shifted by 1; sigmoid of -2, -1, .5 and of -1, 0, 1.5
    assert first.uncalibrated == pytest.approx([0.1192, 0.2689, 0.6225], abs=1e-4)
    assert first.calibrated == pytest.approx([0.2689, 0.5, 0.8176], abs=1e-4)
    assert first.bin_samples == [9, 0] and first.bin_rate == [0.25, None]
    # id 2 chose one bin; its function is the identity
    assert second.bin_rate == [0.5] and second.calibrated == pytest.approx([0.1192, 0.6225], abs=1e-4)


def test_chosen_bins_only_with_several_candidates(config: RunConfig) -> None:
    assert [(c.n_responses, c.n_bins) for c in gather_data(config).chosen_bins] == [(100, 2), (10, 1), (1, 2)]
    fixed = make_config(
        runs_dir=config.runs_dir, input=config.input.model_dump(), features={}, bins={"n_bins_candidates": [2]}
    )
    assert gather_data(fixed).chosen_bins == []


def test_without_chosen_candidates_the_largest_is_shown(config: RunConfig) -> None:
    write_checkpoint(config)
    data = gather_data(config)
    assert data.chosen_bins == [] and {len(function.bin_rate) for function in data.functions} == {2}


def test_status_json_is_not_needed(config: RunConfig) -> None:
    (config.run_dir / "status.json").unlink()
    report.run(config)
    assert "There is no status.json" in (config.run_dir / "report.html").read_text()


@pytest.mark.parametrize(
    ("missing", "stage", "error"),
    [
        ("metrics.json", "evaluate", ReportInputMissing),
        ("evaluation.json", "evaluate", ReportInputMissing),
        ("unified", "train_calibrator", ReportInputMissing),
        ("tables/samples", "prepare_samples", TableMissing),
        ("tables/field_values", "prepare_samples", TableMissing),
        ("tables/field_value_metrics", "evaluate", TableMissing),
        ("tables/bin_statistics", "compute_bin_statistics", TableMissing),
    ],
)
def test_what_is_missing_names_its_stage_and_writes_nothing(
    config: RunConfig, missing: str, stage: str, error: type[Exception]
) -> None:
    path = config.run_dir / missing
    remove: Callable[[Path], Any] = shutil.rmtree if path.is_dir() else Path.unlink
    remove(path)
    with pytest.raises(error, match=f"run `adacalib {stage}`"):
        report.run(config)
    assert not (config.run_dir / "report.html").exists()


def test_missing_loss_curve_of_a_predictor(config: RunConfig) -> None:
    with_predictor = make_config(runs_dir=config.runs_dir)
    with pytest.raises(ReportInputMissing, match="run `adacalib train_predictor`"):
        report.run(with_predictor)


def test_broken_json_names_the_file(config: RunConfig) -> None:
    (config.run_dir / "metrics.json").write_text('{"field": ')
    with pytest.raises(ReportInputMissing, match=r"metrics\.json is no JSON .*run `adacalib evaluate` again"):
        report.run(config)


def test_main_takes_the_configuration_file(config: RunConfig, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(config.model_dump(mode="json") | {"runs_dir": "elsewhere"}))
    report.main(["--config", str(file), "--set", f"runs_dir={tmp_path}"])
    assert (config.run_dir / "report.html").is_file()
