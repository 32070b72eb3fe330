"""A small comparison: its files, that all methods meet the same rows, and that it finds what a run finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from adacalib.baselines.catalogue import BASELINES
from adacalib.cells.seeds import compute_paired_p
from adacalib.config import RunConfig, parse_config
from jobs import compare, experiments
from jobs.pipeline import run_stages
from tests.jobs.small_experiments import experiment_config, keep_session, make_console, train_in_process
from tests.small_runs import draw_world, write_input

N_ROWS, N_SEEDS = 2000, 2
TRAINED = ("neucalib", "adacalib")
METHODS = ("uncalibrated", *BASELINES, *TRAINED, "truth")
ISSUE_METRICS = ("field_rce", "field_rce_terciles", "log_loss", "auc", "field_auc", "fit_seconds")


@dataclass(frozen=True)
class Comparison:
    config: RunConfig
    document: dict[str, Any]
    printed: str
    variants: dict[str, experiments.Variant]

    def read_result(self, seed: int) -> dict[str, Any]:
        return json.loads((self.config.run_dir / "compare" / f"seed_{seed}" / "result.json").read_text())


@pytest.fixture(scope="module")
def patch(spark: SparkSession) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        keep_session(patch, spark)
        yield patch


@pytest.fixture(scope="module")
def comparison(patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two seeds with two of the trained methods."""
    folder = tmp_path_factory.mktemp("compare")
    write_input(folder, draw_world(N_ROWS))
    config = experiment_config(folder, {"input": {"truth": "score"}, "seed": 7})
    variants = {name: variant for name, variant in compare.list_variants(config).items() if name in TRAINED}
    console = make_console()
    with pytest.MonkeyPatch.context() as few:
        train_in_process(few)
        few.setattr(compare, "list_variants", lambda config: variants)
        document = compare.run(config, N_SEEDS, console)
    return Comparison(config, document, console.file.getvalue(), variants)


def test_document_has_every_method_metric_and_seed(comparison: Comparison) -> None:
    path = comparison.config.run_dir / "compare.json"
    document = json.loads(path.read_text())
    assert document == json.loads(json.dumps(comparison.document))
    assert tuple(document["methods"]) == tuple(document["labels"]) == METHODS
    assert document["seeds"] == [7, 8]
    for method, metrics in document["methods"].items():
        for metric in (*ISSUE_METRICS, "truth_error", "pcoc"):
            assert len(metrics[metric]) == N_SEEDS, (method, metric)
            assert all(isinstance(value, float | int) for value in metrics[metric]), (method, metric)
    for key in ("noise_floor", "attainable", "noise_floor_terciles", "attainable_terciles"):
        assert len(document[key]) == N_SEEDS and all(value > 0 for value in document[key])
    assert document["labels"]["adacalib"] == "AdaCalib" and document["labels"]["isotonic_ratio"].startswith("isotonic")


def test_best_and_its_p_value_are_those_of_the_log_losses(comparison: Comparison) -> None:
    document = comparison.document
    losses = {name: own["log_loss"] for name, own in document["methods"].items() if name != "truth"}
    ranked = sorted(losses, key=lambda name: np.mean(losses[name]))
    assert document["best"] == ranked[0] == document["by_metric"]["log_loss"]["best"]
    second = document["by_metric"]["log_loss"]["second"]
    assert second == ranked[1]  # of two, and neither is of AdaCalib's family twice
    assert document["p_value"] == pytest.approx(compute_paired_p(losses[ranked[0]], losses[second]))
    assert 0 <= document["by_metric"]["log_loss"]["p_value_jackknife"] <= 1
    gap = document["adacalib_minus"]["log_loss"]["isotonic"]
    assert gap["difference"] == pytest.approx(np.mean(losses["adacalib"]) - np.mean(losses["isotonic"]))
    assert gap["p_value_jackknife"] is not None
    assert document["adacalib_minus"]["auc"]["isotonic"]["p_value_jackknife"] is None  # no sums by group for AUCs


def test_every_method_is_scored_on_the_same_rows(comparison: Comparison) -> None:
    for seed in (7, 8):
        result = comparison.read_result(seed)
        seen = {(own["n_samples"], own["n_responses"]) for own in result["methods"].values()}
        assert len(seen) == 1
        ((n_samples, _),) = seen
        table = pq.read_table(comparison.config.run_dir / "compare" / f"seed_{seed}" / "tables" / "samples")
        split = table["split"].to_pylist()
        assert n_samples == result["n_test"] == split.count("test")
        assert result["n_fit"] == split.count("train") + split.count("dev")
    assert comparison.document["n_test"] == comparison.read_result(7)["n_test"]


def test_level_drift_is_gathered_over_the_seeds(comparison: Comparison) -> None:
    assert comparison.document["level_drift"] is None  # its rows have no dates
    results = [{"level_drift": {"none": {"log_loss": 0.5, "pcoc": 1.1}}}, {"level_drift": {"none": {"log_loss": 0.4}}}]
    assert compare.collect_level_drift(results) == {"none": {"log_loss": [0.5, 0.4], "pcoc": [1.1, None]}}


def test_what_adacalib_decided_is_told_per_seed(comparison: Comparison) -> None:
    choices = comparison.document["choices"]
    assert set(choices["field_part"]) <= {"robust", "global_curve"} and choices["forward_slope"] == [1.0, 1.0]
    for place, seed in enumerate((7, 8)):
        folder = comparison.config.run_dir / "compare" / f"seed_{seed}" / "adacalib" / "unified"
        training = json.loads((folder / "training.json").read_text())
        assert {key: values[place] for key, values in choices.items()} == {key: training[key] for key in choices}


def test_a_seed_deals_another_split(comparison: Comparison) -> None:
    tests = []
    for seed in (7, 8):
        table = pq.read_table(comparison.config.run_dir / "compare" / f"seed_{seed}" / "tables" / "samples")
        tests.append(
            {row["sample_id"] for row in table.select(["sample_id", "split"]).to_pylist() if row["split"] == "test"}
        )
    assert 0 < len(tests[0] & tests[1]) < 0.5 * len(tests[0])
    losses = comparison.document["methods"]["uncalibrated"]["log_loss"]
    assert losses[0] != losses[1]


def test_the_field_effect_is_found(comparison: Comparison) -> None:
    means = {name: np.mean(own["field_rce"]) for name, own in comparison.document["methods"].items()}
    assert means["adacalib"] < 0.6 * means["isotonic"] and means["adacalib"] < 0.6 * means["neucalib"]
    assert comparison.document["methods"]["truth"]["truth_error"] == [0.0, 0.0]
    assert comparison.document["methods"]["uncalibrated"]["truth_error"] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_fit_seconds_are_the_trainers_and_the_baselines_own(comparison: Comparison) -> None:
    methods = comparison.document["methods"]
    assert methods["uncalibrated"]["fit_seconds"] == methods["truth"]["fit_seconds"] == [0.0, 0.0]
    for place, seed in enumerate((7, 8)):
        for name in TRAINED:
            folder = comparison.config.run_dir / "compare" / f"seed_{seed}" / name / "unified"
            told = json.loads((folder / "training.json").read_text())
            assert methods[name]["fit_seconds"][place] == told["seconds"] > 0
    assert all(second > 0 for name in BASELINES for second in methods[name]["fit_seconds"])


def test_adacalib_is_the_one_of_a_run_with_that_seed(
    comparison: Comparison, patch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run trains in a process of its own, as on the command line."""
    changes = {"runs_dir": str(tmp_path), "seed": 8}
    config = parse_config(comparison.config.model_dump(mode="json") | changes)
    run_stages(config, tuple(stage for stage in config.stages if stage != "report"), make_console())
    found = json.loads((config.run_dir / "metrics.json").read_text())
    for method in ("adacalib", "isotonic", "isotonic_offset", "uncalibrated"):
        for metric in ("log_loss", "field_rce", "field_rce_terciles", "auc", "field_auc", "pcoc"):
            ours = comparison.document["methods"][method][metric][1]
            assert ours == pytest.approx(found["methods"][method][metric], abs=1e-9), (method, metric)
    assert comparison.document["noise_floor"][1] == pytest.approx(found["methods"]["adacalib"]["field_rce_noise_floor"])
    assert comparison.document["attainable"][1] == pytest.approx(found["methods"]["adacalib"]["field_rce_attainable"])


def test_page_and_pictures_are_there_and_progress_was_told(comparison: Comparison) -> None:
    page = (comparison.config.run_dir / "compare.html").read_text()
    assert "isotonic + offset" in page and "AdaCalib" in page and "NeuCalib" in page
    pictures = list((comparison.config.run_dir / "figures").glob("*.png"))
    assert pictures and all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    lines = comparison.printed.splitlines()
    assert [line for line in lines if line.startswith("seed")] == ["seed 7 (1 of 2)", "seed 8 (2 of 2)"]
    assert [line.split()[0] for line in lines if not line.startswith("seed")] == [
        *("tables", "NeuCalib", "AdaCalib", "evaluation") * 2,
    ]


def resume(comparison: Comparison, config: RunConfig) -> tuple[dict[str, Any] | None, str]:
    """The comparison again with --resume; None for the document where a seed would be run once more."""

    class RunAgain(Exception):
        pass

    def run_again(*_: Any) -> None:
        raise RunAgain

    console = make_console()
    with pytest.MonkeyPatch.context() as few:
        few.setattr(compare, "list_variants", lambda config: comparison.variants)
        few.setattr(experiments, "_run_seed", run_again)
        try:
            return compare.run(config, N_SEEDS, console, resume=True), console.file.getvalue()
        except RunAgain:
            return None, console.file.getvalue()


def test_resume_takes_finished_seeds_as_they_are(comparison: Comparison, patch: pytest.MonkeyPatch) -> None:
    noted = comparison.config.model_copy(update={"note": "another sentence"})
    document, printed = resume(comparison, noted)
    assert document is not None and printed.count("as found in") == 2
    assert document == comparison.document | {"note": "another sentence"}


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation": {"jackknife_groups": 11}},
        {"split": {"train": 0.5, "dev": 0.3, "test": 0.2}},
        {"bins": {"n_bins_candidates": [5, 10]}},
        {"input": {"row_filter": "price > 0"}},
        {"calibrator": {"learning_rate": 0.02}},
        {"calibrator": {"auxiliary": {"learning_rate": 0.02}}},
        {"seed": 9},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_resume_refuses_seeds_of_other_settings(
    comparison: Comparison, patch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    config = parse_config(
        {
            key: {**value, **changes.get(key, {})} if isinstance(value, dict) else changes.get(key, value)
            for key, value in comparison.config.model_dump(mode="json").items()
        }
    )
    document, printed = resume(comparison, config)
    assert document is None and "as found in" not in printed


def test_all_methods_of_the_issue_run_in_one_comparison(
    patch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path, draw_world(1200, seed=3))
    config = experiment_config(tmp_path, {"bins": {"n_bins_candidates": None}})
    with pytest.MonkeyPatch.context() as here:
        train_in_process(here)
        document = compare.run(config, 1, make_console())
    trained = ["neucalib", "isotonic_offset_auxiliary", "adacalib_paper", "adacalib_no_auxiliary", "adacalib"]
    assert list(document["methods"]) == ["uncalibrated", *BASELINES, *trained]
    assert all(len(own["log_loss"]) == 1 and own["log_loss"][0] > 0 for own in document["methods"].values())
    assert document["p_value"] is None and document["by_metric"].keys() == {
        *("log_loss", "field_rce", "field_rce_terciles", "field_auc", "auc"),  # no truth, no error against it
    }
    assert document["figures"]["figure_4"]["largest"] == 20 and len(document["figures"]["figure_3"]) == 2
    told = config.run_dir / "compare" / "seed_7" / "adacalib_paper" / "unified" / "training.json"
    curve = json.loads(told.read_text())["loss_curves"]["paper"]
    assert [epoch["epoch"] for epoch in curve] == [0, 1]  # calibrator.auxiliary.epochs is 1 there too
    assert (config.run_dir / "compare.html").is_file()
