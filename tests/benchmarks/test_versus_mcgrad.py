"""The parts of the comparison that need no MCGrad: what it is given, the bars, the table, the command line."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from adacalib.config import parse_config
from benchmarks import mcgrad_fit, versus_mcgrad
from benchmarks.mcgrad_fit import RowsError, arrange_rows
from benchmarks.versus_mcgrad import LEVELS, Results, collect, judge, make_table, read_without_auxiliary, show

CONFIG = {
    "name": "small",
    "input": {"path": "none.parquet", "label": "y", "score": "s"},
    "fields": ["shop"],
    "features": {"numeric": ["price"], "categorical": ["hour"]},
}


def make_results(rce: float, loss: float, seconds: float) -> Results:
    """AdaCalib's figures as given; MCGrad: Field-RCE .10, LogLoss .5 and 60 s in the mean of two seeds."""
    return {
        "adacalib_without_auxiliary": {"field_rce": [rce], "log_loss": [loss], "fit_seconds": [1.0, 2.0]},
        "adacalib": {"field_rce": [rce], "log_loss": [loss], "fit_seconds": [seconds]},
        "mcgrad": {"field_rce": [0.05, 0.15], "log_loss": [0.4, 0.6], "fit_seconds": [50.0, 70.0]},
    }


def make_samples(**changes: pa.Array | None) -> pa.Table:
    columns = {
        "sample_id": pa.array(["a", "b", "c"]),
        "split": pa.array(["train", "test", "dev"]).dictionary_encode(),  # as a partitioned table comes back
        "label": pa.array([1, 0, 1], pa.int8()),
        "weight": pa.array([1.0, 2.0, 1.0]),
        "uncalibrated_logit": pa.array([0.0, np.log(3.0), -np.log(3.0)], pa.float32()),
        "auxiliary_features": pa.array([[0.5, -1.0], [1.5, 0.0], [-0.5, 2.0]], pa.list_(pa.float32())),
        "auxiliary_category_ids": pa.array([[4], [0], [2]], pa.list_(pa.int32())),
        "field_value_id_shop": pa.array([2, 0, 1], pa.int32()),
        **changes,
    }
    return pa.table({name: values for name, values in columns.items() if values is not None})


def test_bars_by_hand() -> None:
    # Field-RCE .09 < .10 and LogLoss .51 > .50; without auxiliary 60 / 1.5 = 40 times faster, with it 60 / 30 = 2 times
    bars = judge(make_results(rce=0.09, loss=0.51, seconds=30.0), "cvr_like")
    assert [bar.holds for bar in bars] == [True, False, True, False]
    np.testing.assert_allclose([bar.measured for bar in bars], [0.09, 0.51, 40.0, 2.0])
    np.testing.assert_allclose([bar.limit for bar in bars], [0.10, 0.5, 20.0, 3.0])


@pytest.mark.parametrize(("dataset", "n_bars"), [("cvr_like", 4), ("flights3m", 3), ("scores", 2)])
def test_bars_depend_on_the_configuration(dataset: str, n_bars: int) -> None:
    assert len(judge(make_results(0.09, 0.4, 10.0), dataset)) == n_bars


def test_equal_figures_are_not_lower_and_the_speed_bar_includes_its_limit() -> None:
    bars = judge(make_results(rce=0.1, loss=0.5, seconds=20.0), "cvr_like")
    assert [bar.holds for bar in bars] == [False, False, True, True]


@settings(deadline=None, max_examples=30)
@given(factor=st.floats(0.01, 100), seconds=st.floats(0.1, 1000))
def test_speed_bars_do_not_depend_on_the_unit_of_time(factor: float, seconds: float) -> None:
    results = make_results(0.09, 0.4, seconds)
    scaled = {
        method: {**values, "fit_seconds": [value * factor for value in values["fit_seconds"]]}
        for method, values in results.items()
    }
    ratios = [bar.measured for bar in judge(results, "scores")]
    np.testing.assert_allclose([bar.measured for bar in judge(scaled, "scores")], ratios)


def test_show_mean_and_spread() -> None:
    # mean of .1, .2, .3 is .2; their standard deviation with n - 1 is .1
    assert show([0.1, 0.2, 0.3], 2) == "0.20\n±0.10"
    assert show([0.125], 4) == "0.1250"
    assert show([None, 0.5], 1) == "0.5"
    assert show([None], 3) == show(None, 3) == "–"


def test_table_shows_every_method_and_the_levels() -> None:
    levels = {name: [place / 10] for place, name in enumerate(LEVELS)}
    results = make_results(0.0912, 0.46681, 12.5) | {"uncalibrated": {"log_loss": [0.48]}}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(make_table(results, levels, "flights"))
    text = console.export_text()
    lines = {line.strip().split("  ")[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["AdaCalib"][1:] == ["0.0912", "–", "0.46681", "–", "–", "–", "12.50"]
    assert lines["un-calibrated"][1:] == ["–", "–", "0.48000", "–", "–", "–", "–"]
    assert "field rce attainable 0.1000" in text


def test_description_of_a_seed() -> None:
    document = {
        "adacalib_minus_mcgrad": {"log_loss": {"difference": -0.002, "interval": [-0.003, -0.001]}},
        "mcgrad_fit": {"n_rounds": 12, "fit_cpu_seconds": 90.04},
        "table_seconds": {"build_logit_cells": 4.9, "build_training_rows": 4.4},
        "load_average": 0.3,
    }
    told = versus_mcgrad.describe(document)
    assert "AdaCalib - MCGrad -0.00200 [-0.00300, -0.00100]; MCGrad 12 rounds, 90.0 CPU seconds" in told
    assert told.endswith("build_logit_cells 4.9 s, build_training_rows 4.4 s; load average 0.3")
    undefined = document | {"adacalib_minus_mcgrad": {"log_loss": None}}
    assert "MCGrad not defined" in versus_mcgrad.describe(undefined)


def test_collect_puts_the_seeds_side_by_side() -> None:
    metrics = dict.fromkeys(("field_rce", "field_rce_terciles", "log_loss", "field_auc", "auc", *LEVELS), 0.5)
    documents = [
        {
            "methods": {method: metrics | {"log_loss": loss} for method in versus_mcgrad.METHODS},
            "fit_seconds": {"adacalib": 2 * loss, "adacalib_without_auxiliary": loss, "mcgrad": 10 * loss},
        }
        for loss in (0.4, 0.6)
    ]
    results, levels = collect(documents)
    assert results["mcgrad"]["log_loss"] == [0.4, 0.6]
    assert results["adacalib"]["fit_seconds"] == [0.8, 1.2]
    assert "fit_seconds" not in results["uncalibrated"]
    assert levels["field_rce_noise_floor"] == [0.5, 0.5]


def test_mcgrad_gets_every_feature_of_every_row() -> None:
    rows = arrange_rows(make_samples(), "field_value_id_shop")
    assert rows.categorical == ["field_value_id_shop", "category_0"]
    assert rows.numeric == ["number_0", "number_1"]
    # the logit of 3/4 is log 3
    np.testing.assert_allclose(rows.columns["uncalibrated_score"], [0.5, 0.75, 0.25], rtol=1e-6)
    np.testing.assert_array_equal(rows.columns["split"] == "test", [False, True, False])
    np.testing.assert_array_equal(rows.columns["number_1"], [-1.0, 0.0, 2.0])
    np.testing.assert_array_equal(rows.columns["category_0"], [4, 0, 2])
    np.testing.assert_array_equal(rows.columns["field_value_id_shop"], [2, 0, 1])


def test_mcgrad_gets_the_field_alone_where_there_are_no_features() -> None:
    empty = pa.array([[], [], []], pa.list_(pa.float32()))
    rows = arrange_rows(make_samples(auxiliary_features=empty, auxiliary_category_ids=empty), "field_value_id_shop")
    assert (rows.categorical, rows.numeric) == (["field_value_id_shop"], [])


def test_rows_follow_their_samples_in_any_order() -> None:
    order = [2, 0, 1]
    straight = arrange_rows(make_samples(), "field_value_id_shop")
    turned = arrange_rows(make_samples().take(order), "field_value_id_shop")
    for name, values in straight.columns.items():
        np.testing.assert_array_equal(turned.columns[name], values[order])


def test_faulty_tables_are_refused() -> None:
    with pytest.raises(RowsError, match="no column weight, field_value_id_town; run from score_samples"):
        arrange_rows(make_samples(weight=None), "field_value_id_town")
    with pytest.raises(RowsError, match="no rows"):
        arrange_rows(make_samples().slice(0, 0), "field_value_id_shop")


def test_other_rows_are_no_comparison() -> None:
    versus_mcgrad.check_same_rows({"n_fit": 8, "n_test": 2}, {"n_fit": 8, "n_test": 2})
    with pytest.raises(versus_mcgrad.DifferentRows, match=r"\(n_test: MCGrad 1, AdaCalib 2\)"):
        versus_mcgrad.check_same_rows({"n_fit": 8, "n_test": 2}, {"n_fit": 8, "n_test": 1})


def test_missing_environment_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(versus_mcgrad.McgradMissing, match="no such interpreter; `make mcgrad` builds"):
        versus_mcgrad.fit_mcgrad(parse_config(CONFIG), tmp_path / "python", threads=2)


def test_a_failing_fit_shows_its_last_words(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'out of trees' >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(versus_mcgrad.McgradMissing, match=r"(?s)ended with 3:.*out of trees"):
        versus_mcgrad.fit_mcgrad(parse_config(CONFIG | {"runs_dir": str(tmp_path)}), python, threads=2)


def test_run_without_auxiliary_reads_the_same_tables() -> None:
    config = parse_config(CONFIG | {"training": {"ranks": 2}})
    without = read_without_auxiliary(config)
    assert config.has_auxiliary_network and not without.has_auxiliary_network
    assert without.inputs_from == str(config.run_dir)
    assert without.run_dir != config.run_dir
    assert (config.training.ranks, without.training.ranks) == (2, 1)
    assert without.describe_generation("x") == config.describe_generation("x")


def test_mcgrad_lock_is_pins_and_has_the_version_that_is_compared() -> None:
    lines = (Path(mcgrad_fit.__file__).parent / "mcgrad.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "MCGrad==0.1.5" in pins
    assert all(line.count("==") == 1 for line in pins)
