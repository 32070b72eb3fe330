"""A small ablation with every row that there is: its files, its differences, and what the trainings told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from adacalib.cells.functions import interpolate
from adacalib.config import ConfigError, RunConfig
from adacalib.model.calibrator import functions_of
from adacalib.model.unified import load_model
from jobs import ablate, experiments
from jobs.compare import METRICS
from tests.jobs.small_experiments import experiment_config, keep_session, make_console, train_in_process
from tests.small_runs import draw_world, write_input

PAPER = ("paper_full", "paper_no_auxiliary", "paper_fixed_bins", "paper_one_function", "paper_free_knots")
PARTS = {
    "robust_no_level": ("value_level", False),
    "robust_no_slope": ("value_slope", False),
    "robust_no_shape": ("value_shape", False),
    "robust_no_bin_shift": ("bin_shrinkage", False),
    "robust_no_re_level": ("re_level", False),
    "robust_not_monotone": ("hard_monotone", False),
    "robust_always": ("do_no_harm", False),
    "robust_dev_only": ("fit_on", "dev"),
}
NETWORK = {
    "robust_no_auxiliary": ("enabled", False),
    "robust_no_embedding": ("field_value_embedding", False),
}
ROWS = (*PAPER, "robust_full", *PARTS, *NETWORK)


@pytest.fixture(scope="module")
def ablation(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunConfig, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ablate")
    write_input(folder, draw_world(2000))
    config = experiment_config(folder)
    with pytest.MonkeyPatch.context() as patch:
        keep_session(patch, spark)
        train_in_process(patch)
        yield config, ablate.run(config, 1, make_console())


def test_each_part_of_the_issue_has_its_row(tmp_path: Path) -> None:
    variants = ablate.list_variants(experiment_config(tmp_path))
    assert tuple(variants) == ROWS
    full = variants["robust_full"].calibrator
    for name, (key, value) in PARTS.items():
        assert variants[name].calibrator == full | {key: value}, name
    for name, (key, value) in NETWORK.items():
        assert variants[name].calibrator == full | {"auxiliary": full["auxiliary"] | {key: value}}, name
    assert len({variant.label for name, variant in variants.items() if name.startswith("robust")}) == 11


def test_table_2_takes_one_part_more_out_in_each_row(tmp_path: Path) -> None:
    variants = ablate.list_variants(experiment_config(tmp_path))
    changed: list[tuple[str, Any]] = [
        ("auxiliary", variants["paper_full"].calibrator["auxiliary"] | {"enabled": False}),
        ("adaptive_binning", False),
        ("adaptive_function", False),
        ("posterior_guidance", False),
    ]
    expected = variants["paper_full"].calibrator
    assert expected["mode"] == "paper"
    for name, (key, value) in zip(PAPER[1:], changed, strict=True):
        expected = expected | {key: value}
        assert variants[name].calibrator == expected, name


@pytest.mark.parametrize(
    ("calibrator", "left_out"),
    [
        ({"value_slope": False}, {"robust_no_slope"}),
        ({"fit_on": "dev"}, {"robust_dev_only"}),
        ({"auxiliary": {"field_value_embedding": False}}, {"robust_no_embedding"}),
        ({"auxiliary": {"enabled": False}}, {"paper_no_auxiliary", *NETWORK}),
        ({"mode": "paper"}, set()),
    ],
)
def test_what_the_configuration_changed_already_is_no_row(
    tmp_path: Path, calibrator: dict[str, Any], left_out: set[str]
) -> None:
    variants = ablate.list_variants(experiment_config(tmp_path, {"calibrator": calibrator}))
    assert set(ROWS) - set(variants) == left_out
    full = variants["robust_full"].calibrator
    assert [name for name, variant in variants.items() if variant.calibrator == full] == ["robust_full"]


def test_a_split_by_date_has_a_row_more(tmp_path: Path) -> None:
    dated = {"split": {"by": "date"}, "input": {"date": "day"}}
    variants = ablate.list_variants(experiment_config(tmp_path, dated))
    assert set(variants) - set(ROWS) == {"robust_no_forward_slope"}
    full = variants["robust_full"].calibrator
    assert variants["robust_no_forward_slope"].calibrator == full | {"forward_slope": False}


def test_document_has_every_row_and_metric(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    config, document = ablation
    assert json.loads((config.run_dir / "ablate.json").read_text()) == json.loads(json.dumps(document))
    assert tuple(document["methods"]) == tuple(document["labels"]) == ("uncalibrated", *ROWS)
    for name, metrics in document["methods"].items():
        assert set(metrics) == set(METRICS)
        assert all(len(values) == 1 for values in metrics.values()), name
        assert metrics["log_loss"][0] > 0 and metrics["truth_error"] == [None]
    assert set(document["p_value_log_loss"]) == set(ROWS)
    assert set(document["p_value_log_loss"].values()) == {None}  # one seed has no spread
    assert all(len(document[key]) == 1 for key in ("noise_floor", "attainable", "attainable_terciles"))


def test_rows_met_the_same_test_rows(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    config, document = ablation
    result = json.loads((config.run_dir / "ablate" / "seed_7" / "result.json").read_text())
    assert {own["n_samples"] for own in result["methods"].values()} == {document["n_test"]}
    assert set(result["methods"]) == {"uncalibrated", *ROWS}


def test_parts_that_matter_cost_what_they_should(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    _, document = ablation
    loss = {name: own["log_loss"][0] for name, own in document["methods"].items()}
    rce = {name: own["field_rce"][0] for name, own in document["methods"].items()}
    assert loss["robust_full"] < loss["uncalibrated"] - 0.02
    # levels of 1.2: without them the field error is that of one curve for all
    assert rce["robust_full"] < 0.6 * rce["uncalibrated"]
    assert loss["paper_one_function"] > loss["robust_no_auxiliary"] + 0.01
    # each row is another calibrator; but one candidate has no other bins, nothing fell, and harm was not to be feared
    alike = {"paper_fixed_bins", "robust_not_monotone", "robust_always"}
    others = {name: value for name, value in loss.items() if name not in alike}
    assert len({round(value, 12) for value in others.values()}) == len(others) == len(ROWS) + 1 - 3


def test_what_the_trainings_told(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    config, document = ablation
    robust = [name for name in ROWS if name.startswith("robust")]
    assert list(document["pooled_share"]) == robust
    # the share is that of the functions served, unseen values included
    folder = config.run_dir / "ablate" / "seed_7" / "robust_not_monotone" / "unified"
    functions = functions_of(load_model(folder, "shop")[0].calibrator)
    n_values = functions.n_values
    falls = 0
    for i in range(n_values):
        bounds = functions.bin_bounds_RJ[i, : functions.n_bins_R[i] + 1]
        falls += bool(np.any(np.diff(interpolate(functions, np.full(len(bounds), i), bounds)) < -1e-9))
    assert document["pooled_share"]["robust_not_monotone"] == [pytest.approx(falls / n_values)]


def test_dev_alone_has_tables_of_its_own_and_the_others_none(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    config, _ = ablation
    folder = config.run_dir / "ablate" / "seed_7"
    assert [path.parent.name for path in folder.glob("*/tables")] == ["robust_dev_only"]
    manifest = json.loads((folder / "robust_dev_only" / "tables" / "training_rows" / "_manifest.json").read_text())
    splits = json.loads((folder / "tables" / "samples" / "_manifest.json").read_text())["splits"]
    assert (manifest["fit_on"], manifest["rows"]) == ("dev", splits["dev"]["n_samples"])


def test_page_and_pictures_are_there(ablation: tuple[RunConfig, dict[str, Any]]) -> None:
    config, _ = ablation
    page = (config.run_dir / "ablate.html").read_text()
    assert "posterior guidance" in page and "levels, value re-level" in page
    assert list((config.run_dir / "figures").glob("*.png"))


def test_a_variant_of_an_earlier_ablation_is_not_read(
    ablation: tuple[RunConfig, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, document = ablation
    few = {name: ablate.list_variants(config)[name] for name in ("robust_full", "robust_no_slope")}

    def take_few(*_: Any) -> dict[str, Any]:
        result = json.loads((config.run_dir / "ablate" / "seed_7" / "result.json").read_text())
        parts = {key: {name: result[key][name] for name in ("uncalibrated", *few)} for key in ("methods", "leave_outs")}
        return result | parts

    monkeypatch.setattr(experiments, "_run_seed", take_few)
    monkeypatch.setattr(experiments.io, "write_json", lambda path, document: None)
    again = ablate.run(config, 1, make_console(), only=["robust_no_slope"])
    assert list(again["labels"]) == ["uncalibrated", *few]
    assert list(again["pooled_share"]) == list(few)
    assert (document["only"], again["only"]) == ([], ["robust_no_slope"])
    assert again["p_value_log_loss"] == {name: document["p_value_log_loss"][name] for name in few}


def test_rows_named_come_with_the_full_calibrator_of_their_mode(tmp_path: Path) -> None:
    variants = ablate.list_variants(experiment_config(tmp_path))
    assert ablate.pick_variants(variants, []) == variants
    picked = ablate.pick_variants(variants, ["robust_no_slope", "paper_fixed_bins"])
    assert list(picked) == ["paper_full", "paper_fixed_bins", "robust_full", "robust_no_slope"]  # in the table's order
    assert list(ablate.pick_variants(variants, ["robust_full"])) == ["robust_full"]
    with pytest.raises(
        ConfigError, match=r"--only robust_no_parent: no such row here; there are paper_full, .*robust_no_embedding$"
    ):
        ablate.pick_variants(variants, ["robust_full", "robust_no_parent"])


def test_differences_are_paired_with_the_full_calibrator_of_the_mode() -> None:
    def result(seed: int, losses: dict[str, float]) -> dict[str, Any]:
        blank = dict.fromkeys((*METRICS, *(ablate.LEVELS.values())), 0.5)
        methods = {name: blank | {"log_loss": loss} for name, loss in losses.items()}
        leave_outs = {name: {"log_loss": [loss - 0.1, loss + 0.1]} for name, loss in losses.items()}
        told = {"methods": methods, "leave_outs": leave_outs, "reference_score": "truth"}
        return {"seed": seed, "n_test": 3, "n_fit": 9} | told

    results = [
        result(seed, {"uncalibrated": 1.0, "paper_full": 0.5, "paper_x": 0.5 + d, "robust_full": 0.4, "robust_x": 0.41})
        for seed, d in ((1, 0.1), (2, 0.2), (3, 0.3))
    ]
    labels = dict.fromkeys(("paper_full", "paper_x", "robust_full", "robust_x"), "label")
    document = ablate.summarise(experiment_config(Path("unused")), results, labels)
    found = document["p_value_log_loss"]
    # mean .2, deviation .1, n 3: t = .2/(.1/sqrt(3)) = 3.464 on 2 degrees of freedom, p = 1 - t/sqrt(2 + t²) = .0742
    assert found["paper_x"] == pytest.approx(0.0742, abs=1e-4)
    assert found["robust_x"] == 0.0  # the same in every seed
    assert found["paper_full"] == found["robust_full"] == 1.0
    assert document["labels"] == {"uncalibrated": "N/A", **labels}
    assert document["noise_floor"] == [0.5] * 3 and document["seeds"] == [1, 2, 3]
