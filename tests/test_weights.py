"""A row with weight 2 equals two rows: held for every stage that takes weights.

Exact, to rounding, is all that is a sum over rows: cells, bins, curves, effects, baselines, losses and their gradients,
metrics. It cannot be exact, and the tests here say how far it goes,
- where rows are dealt by a hash or at random (split, hold-out, jackknife group, the 70/30 of `do_no_harm`):
  copies are dealt one by one, a row with weight 2 as one;
- where a step takes some rows at a time (SGD) or draws noise for each (Gumbel): batches hold rows, not weight;
- where it is asked how many labels a figure rests on (DeLong, Wilson, noise floors): that is the number of rows;
- in percentile_approx, which takes no weights: the bounds of `bins.method: approx_quantile`.
Dense ids count rows and so may be numbered otherwise; what is learnt for a field value does not depend on its number.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.baselines.catalogue import BASELINES
from adacalib.baselines.isotonic_field_part import fit_isotonic_field_part
from adacalib.baselines.references import fit_reference
from adacalib.cells.auc import compute_auc, compute_field_auc
from adacalib.cells.bin_bounds import compute_bin_bounds, sum_bins
from adacalib.cells.floors import compute_cell_noise_floors
from adacalib.cells.global_curve import fit_global_curve
from adacalib.cells.grouped_sums import GroupedSums
from adacalib.cells.intervals import compute_paired_difference
from adacalib.cells.level_drift import compare_levels
from adacalib.cells.logit_cells import LogitCells
from adacalib.cells.metrics import ReferenceLevels, compute_metrics
from adacalib.cells.re_level import fit_re_level
from adacalib.cells.reliability import compute_reliability
from adacalib.cells.robust import choose_without_harm, fit_robust
from adacalib.cells.terciles import assign_terciles
from adacalib.cells.thinning import split_cells
from adacalib.cells.time_periods import split_by_time
from adacalib.cells.value_effects import fit_value_effects
from adacalib.config import RunConfig, TrainingConfig
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.distributed import Ranks, join_ranks
from adacalib.model.paper import PaperCalibrator, compute_paper_loss
from adacalib.model.predictor import Predictor, compute_log_loss
from adacalib.model.robust import RobustCalibrator, compute_step_loss
from adacalib.model.row_files import RowFiles, open_rows
from adacalib.model.training import train
from adacalib.stats.approx_quantile import compute_approximate_bounds, sum_bins_of_rows
from adacalib.stats.evaluation_sums import collect_cells
from adacalib.stats.feature_encodings import learn_numeric_encodings
from adacalib.stats.logit_cells import build_logit_cells
from adacalib.stats.training_rows import find_first_held_out_day
from tests.assert_table import collect_rows
from tests.cells.small_world import cells_by_hand, cells_of_rows
from tests.model.test_paper import make_settings
from tests.model.toy_training import ToyModel, toy_loss, toy_plan
from tests.small_runs import draw_world, make_config, run_stages, write_input
from tests.stats.small_samples import draw_samples, make_samples, make_values

Rows = dict[str, Any]
N_VALUES = 6
FIELD_METRICS = (
    "field_rce", "field_rce_terciles", "field_rce_all_samples", "field_ece", "pcoc", "log_loss", "auc", "field_auc",
)  # fmt: skip


def draw_rows(seed: int = 1, n_rows: int = 1500) -> Rows:
    """Rows of field values 1 to 5 with an effect on level and slope; weights 1, 2 and 3."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(np.arange(1, N_VALUES), n_rows, p=np.array([8, 4, 2, 1, 1]) / 16)
    logit = rng.normal(-1, 1, n_rows)
    truth = 1 / (1 + np.exp(-(0.8 * logit + rng.normal(0, 1, N_VALUES)[ids] * (1 + 0.3 * logit))))
    return {
        "field_value_id": ids,
        "logit": logit,
        "label": (rng.random(n_rows) < truth).astype(np.int64),
        "weight": rng.choice([1.0, 2.0, 3.0], n_rows, p=[0.6, 0.3, 0.1]),
    }


def repeat(rows: Rows) -> Rows:
    """Each row as often as its weight says, with weight 1."""
    times = np.asarray(rows["weight"]).astype(int)
    repeated = {name: np.repeat(values, times, axis=0) for name, values in rows.items()}
    return repeated | {"weight": np.ones_like(repeated["weight"])}


def forget(rows: Rows) -> Rows:
    """The same rows with weight 1 each."""
    return rows | {"weight": np.ones_like(rows["weight"])}


def cells_of(rows: Rows) -> LogitCells:
    return cells_of_rows(rows["field_value_id"], rows["logit"], rows["label"], N_VALUES, rows["weight"])


def robust_parts(cells: LogitCells) -> list[Any]:
    fit = fit_robust(cells, compute_bin_bounds(cells, 8))
    return [fit.functions.knots_RJ, fit.functions.slope_lower_R, [x or 0.0 for x in fit.diagnostics.values()]]


def isotonic_parts(cells: LogitCells) -> list[Any]:
    fit = fit_isotonic_field_part(cells)
    return [fit.functions.knots_RJ, fit.level_V, fit.weight_V, fit.mean_logit]


def bins_of(cells: LogitCells) -> list[Any]:
    bounds = compute_bin_bounds(cells, 8)
    sums = sum_bins(cells, bounds)
    finite = bounds.filled_VJ
    return [finite, bounds.n_bins_V, sums.weight_VK, sums.response_VK, sums.mean_logit_VK]


def curve_of(cells: LogitCells) -> list[Any]:
    curve = fit_global_curve(cells)
    return [curve.logit_knots, curve.calibrated_knots, curve.slope_lower, curve.slope_upper]


def effects_of(cells: LogitCells) -> list[Any]:
    effects = fit_value_effects(cells, cells.logit)
    return [effects.level_V, effects.slope_V, effects.tau_level, effects.tau_slope, effects.mean, effects.scale]


def choice_on_later_days(cells: LogitCells) -> list[Any]:
    later = cells.cell % 3 == 0
    choice = choose_without_harm(cells.select(~later), 8, seed=1, later=cells.select(later))
    assert choice.forward is not None
    slopes = [[part.slope, part.measured or 0.0, part.standard_error or 0.0] for part in choice.forward]
    return [choice.loss_global_curve, choice.loss_robust, slopes]


CELL_FITS: dict[str, Callable[[LogitCells], list[Any]]] = {
    "cells": lambda cells: [cells.field_value_id, cells.cell, cells.weight, cells.response, cells.logit],
    "bins": bins_of,
    "global_curve": curve_of,
    "value_effects": effects_of,
    "robust": robust_parts,
    "isotonic_field_part": isotonic_parts,
    "do_no_harm": choice_on_later_days,
    "re_level": lambda cells: [fit_re_level(cells, np.zeros(N_VALUES))],
    "level_drift": lambda cells: [list(compare_levels(cells, {"none": None, "all": cells})["all"].values())],
    "terciles": lambda cells: [assign_terciles(cells)],
}


def assert_equal_parts(found: list[Any], expected: list[Any], rtol: float = 1e-6) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-7)


@pytest.mark.parametrize("name", CELL_FITS)
def test_what_is_computed_from_cells(name: str) -> None:
    for seed in (1, 2):
        rows = draw_rows(seed)
        found, expected = (CELL_FITS[name](cells_of(table)) for table in (rows, repeat(rows)))
        assert_equal_parts(found, expected)
    unweighted = CELL_FITS[name](cells_of(forget(rows)))  # or the test would hold nothing
    assert any(np.shape(a) != np.shape(b) or not np.allclose(a, b) for a, b in zip(found, unweighted, strict=True))


@pytest.mark.parametrize("name", BASELINES)
def test_baselines(name: str) -> None:
    rows = draw_rows()
    logit, ids = np.tile(np.linspace(-4, 3, 50), N_VALUES), np.repeat(np.arange(N_VALUES), 50)
    found, expected, unweighted = (
        BASELINES[name].fit(cells_of(table)).predict(logit, ids) for table in (rows, repeat(rows), forget(rows))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
    assert not np.allclose(found, unweighted, rtol=1e-4)


def test_refitted_reference() -> None:
    rows = draw_rows()
    found, expected = (
        fit_reference(cells_of(table)).refit(cells_of(table | {"label": 1 - table["label"]})).effects
        for table in (rows, repeat(rows))
    )
    np.testing.assert_allclose(found.level_V, expected.level_V, rtol=1e-6)
    np.testing.assert_allclose(found.slope_V, expected.slope_V, rtol=1e-6, atol=1e-9)


def group(rows: Rows, scores: dict[str, Any]) -> GroupedSums:
    """Sums with one row per row; copies stay in their row's jackknife group, as a hash would not keep them."""
    y, w = rows["label"], rows["weight"]
    return GroupedSums(
        field_value_id=rows["field_value_id"],
        tercile=rows["tercile"],
        group=rows["group"],
        weight=w,
        response=w * y,
        n_samples=np.ones(len(w), np.int64),
        n_responses=y,
        score_sums={name: w * p for name, p in scores.items()},
        log_loss_sums={name: w * -np.log(np.where(y == 1, p, 1 - p)) for name, p in scores.items()},
        n_values=N_VALUES,
        n_groups=5,
    )


def scored_rows(seed: int) -> Rows:
    rows = draw_rows(seed, 200)
    index = np.arange(200)
    return rows | {
        "tercile": index % 3,
        "group": index % 5,
        "p": 1 / (1 + np.exp(-rows["logit"])),
        "q": 0.2 + index / 400,
    }


def score_metrics(rows: Rows) -> tuple[dict[str, Any], Any, Any, Any]:
    cell, counts = np.floor(20 * rows["p"]).astype(np.int64), (np.ones(len(rows["p"]), np.int64), rows["label"])
    weights = (rows["weight"], rows["weight"] * rows["label"])
    auc = compute_auc(cell, *weights, *counts)
    field_auc = compute_field_auc(rows["field_value_id"], cell, *weights, *counts)
    sums = group(rows, {"p": rows["p"], "q": rows["q"]})
    metrics = compute_metrics(sums, "p", auc, field_auc, ReferenceLevels())
    return metrics, auc, field_auc, compute_paired_difference(sums, "p", "q", "log_loss")


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_metrics_and_paired_differences(seed: int) -> None:
    rows = scored_rows(seed)
    found, expected = score_metrics(rows), score_metrics(repeat(rows))
    counts = {"n_samples", "n_responses", "field_auc_excluded_samples", "field_rce_excluded_samples", "unseen"}
    for name in set(found[0]) - counts - {"intervals"}:
        both = [found[0][name], expected[0][name]]
        assert both == [None, None] or both[0] == pytest.approx(both[1], rel=1e-9), name
    assert None not in [found[0][name] for name in FIELD_METRICS]
    for name in set(found[0]["intervals"]) - {"auc", "field_auc"}:
        assert found[0]["intervals"][name] == pytest.approx(expected[0]["intervals"][name], rel=1e-6), name
    assert found[3].difference == pytest.approx(expected[3].difference, rel=1e-9)
    assert found[3].standard_error == pytest.approx(expected[3].standard_error, rel=1e-6)
    # what counts rows: both tables say how many they have
    assert (found[0]["n_samples"], expected[0]["n_samples"]) == (200, int(rows["weight"].sum()))


def test_standard_errors_of_aucs_count_rows() -> None:
    # all weights 2: as many labels as without weights, half as many as with the rows twice; DeLong's variance goes with
    # 1/(m - 1), m the number of labels of a class, so it halves but for the - 1
    rows = scored_rows(1) | {"weight": np.full(200, 2.0)}
    once, weighted, twice = (score_metrics(table)[1] for table in (forget(rows), rows, repeat(rows)))
    assert weighted.auc == pytest.approx(once.auc) == pytest.approx(twice.auc)
    assert weighted.standard_error == pytest.approx(once.standard_error)
    assert twice.standard_error == pytest.approx(weighted.standard_error / np.sqrt(2), rel=0.01)
    # where weights are declared to be counts, they count as labels too
    cell = np.floor(20 * rows["p"]).astype(np.int64)
    declared = compute_auc(cell, rows["weight"], rows["weight"] * rows["label"])
    assert declared is not None and declared.standard_error == pytest.approx(twice.standard_error)


def test_reliability_has_equal_points_and_intervals_that_count_rows() -> None:
    rows = scored_rows(1) | {"weight": np.full(200, 2.0)}

    def describe(table: Rows) -> Any:
        cell, w = np.floor(20 * table["p"]).astype(np.int64), table["weight"]
        return compute_reliability(cell, w, w * table["label"], w * table["p"], np.ones(len(w), np.int64), 4)

    once, weighted, twice = (describe(table) for table in (forget(rows), rows, repeat(rows)))
    for name in ("mean_score", "response_rate"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(twice, name), rtol=1e-12)
    np.testing.assert_allclose(weighted.rate_low, once.rate_low, rtol=1e-12)
    assert np.all(weighted.rate_low < twice.rate_low)


def test_noise_floors_count_rows() -> None:
    # 1000 rows at p = .3, once, with weight 2, and twice: a row's label is drawn once whatever its weight, so weight 2
    # leaves the floor where it was, sqrt(2/pi · .3 · .7 · 1000)/300, and twice the rows divide it by sqrt 2
    once, twice = cells_by_hand([(1, 0, 1000, 300)], 2), cells_by_hand([(1, 0, 2000, 600)], 2)
    weighted = cells_of_rows([1] * 1000, [0.01] * 1000, [1] * 300 + [0] * 700, 2, np.full(1000, 2.0))
    floors = [compute_cell_noise_floors(c, np.array([0.3]), np.array([1]))[0] for c in (once, weighted, twice)]
    expected = np.sqrt(2 / np.pi * 0.3 * 0.7 * 1000) / 300
    np.testing.assert_allclose(floors, [expected, expected, expected / np.sqrt(2)], rtol=1e-12)


def test_a_random_split_deals_a_row_with_weight_2_as_one() -> None:
    rows = {"field_value_id": [1] * 60, "logit": np.linspace(-3, 3, 60), "label": np.arange(60) % 2}
    weighted = cells_of(rows | {"weight": np.full(60, 2.0)})
    twice = cells_of(repeat({n: np.array(v) for n, v in rows.items()} | {"weight": np.full(60, 2.0)}))
    for cells, dealt in ((weighted, {2.0}), (twice, {1.0, 2.0})):
        first, second = split_cells(cells, (0.7, 0.3), seed=1)
        assert first.weight.sum() + second.weight.sum() == 120
        assert set(first.weight.tolist()) == dealt
    # the law's mean is the same: 70 % of the weight; 400 splits of 60 rows have a standard error of 120·.06/20 = .36
    for cells in (weighted, twice):
        mean = np.mean([split_cells(cells, (0.7, 0.3), seed)[0].weight.sum() for seed in range(400)])
        assert mean == pytest.approx(84, abs=5 * 0.36)


def test_split_by_time_counts_weight() -> None:
    # two rows of weight 1 and one of weight 8, a day each: half of the weight is reached on the third day, and the
    # last day is never among the earlier ones; by rows it is reached on the second
    columns = {"date": np.array([0, 1, 2, 3]), "n_samples": np.ones(4), "sum_weight": np.array([1.0, 1.0, 8.0, 1.0])}
    parts = split_by_time(columns, 0.5)
    assert parts is not None and parts[0]["date"].tolist() == [0, 1, 2]


def test_held_out_days_count_weight(spark: SparkSession) -> None:
    # days of 10, 5 and 1 rows, the last row of weight 20: it alone is 20 of 35; as one row of 16 it is below a tenth
    def find(weights: dict[int, list[float]], share: float) -> date | None:
        rows = [(date(2026, 3, day), weight) for day, own in weights.items() for weight in own]
        return find_first_held_out_day(spark.createDataFrame(rows, "date date, weight double"), share)

    earlier = {1: [1.0] * 10, 2: [1.0] * 5}
    weighted, twice, light = (find(earlier | {3: last}, 0.1) for last in ([20.0], [1.0] * 20, [1.0]))
    assert (weighted, twice, light) == (date(2026, 3, 3), date(2026, 3, 3), date(2026, 3, 2))
    # ten times .1 is a hair less than 1, half of the weight all the same
    assert find({1: [0.5], 2: [0.5], 3: [0.1] * 10}, 0.5) == date(2026, 3, 3)


def batch(rows: Rows) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(7)
    features = np.repeat(rng.normal(size=(len(rows["times"]), 2)), rows["times"], axis=0)
    return {
        "label": torch.from_numpy(rows["label"]),
        "weight": torch.from_numpy(rows["weight"]),
        "field_value_id": torch.from_numpy(rows["field_value_id"]),
        "uncalibrated_logit": torch.from_numpy(rows["logit"].astype(np.float32)),
        "predictor_features": torch.from_numpy(features.astype(np.float32)),
        "auxiliary_features": torch.from_numpy(features.astype(np.float32)),
    }


def build_losses() -> dict[str, tuple[torch.nn.Module, Any]]:
    torch.manual_seed(1)
    cells = cells_of(draw_rows())
    bounds = compute_bin_bounds(cells, 4)
    auxiliary = AuxiliaryNetwork(2, [], 3, [4], N_VALUES, takes_logit=True)
    torch.nn.init.normal_(auxiliary.output_layer.weight)
    sums = sum_bins(cells, bounds)
    columns = [
        x[:, None]
        for x in (bounds.bin_bounds_VJ, bounds.n_bins_V, sums.weight_VK, sums.response_VK, sums.mean_logit_VK)
    ]
    bins = importlib.import_module("adacalib.cells.candidate_bins").CandidateBins(
        (4,), *columns, np.arange(N_VALUES) == 0
    )
    return {
        "predictor": (Predictor(2, [], (8, 4, 4), 3, 0.3), compute_log_loss),
        "auxiliary": (
            RobustCalibrator(fit_robust(cells, bounds).functions, -1.0, auxiliary),
            compute_step_loss,
        ),
        "paper": (PaperCalibrator(bins, sums.weight_VK.sum(axis=1), make_settings(), None), compute_paper_loss),
    }


@pytest.mark.parametrize("name", ["predictor", "auxiliary", "paper"])
def test_training_losses_and_their_gradients(name: str) -> None:
    module, step_loss = build_losses()[name]
    rows = draw_rows(n_rows=120)
    times = rows["weight"].astype(int)
    results = []
    for table in (rows | {"times": np.ones_like(times)}, repeat(rows) | {"times": times}):
        module.zero_grad()
        loss, weight = step_loss(module, batch(table))
        (loss / weight).backward()
        gradients = [p.grad.numpy().copy() for p in module.parameters() if p.grad is not None]
        results.append([loss.item() / weight.item(), weight.item(), *gradients])
    assert_equal_parts(*results, rtol=2e-4)
    assert any(np.abs(gradient).max() > 1e-4 for gradient in results[0][2:])


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with join_ranks(TrainingConfig(collective_timeout_seconds=30), seed=1) as joined:
        yield joined


def write_toy(table: Path, seed: int, is_repeated: bool) -> RowFiles:
    """40 rows of weights 1 and 2, or the same with each as often as its weight says."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(40, 2)).astype(np.float32)
    rows = {
        "label": (rng.random(40) < 1 / (1 + np.exp(-features[:, 0]))).astype(np.int8),
        "weight": 1.0 + np.arange(40) % 2,
        "features": features,
    }
    rows = repeat(rows) if is_repeated else rows
    table.mkdir(parents=True)
    arrow = pa.table({**rows, "features": pa.array(list(rows["features"]), pa.list_(pa.float32()))})
    pq.write_table(arrow, table / "a.parquet")
    (table / "_manifest.json").write_text(json.dumps({"rows": len(arrow)}))
    return open_rows(table)


def test_whole_batches_train_alike_and_choose_the_same_epoch(tmp_path: Path, ranks: Ranks) -> None:
    # smaller batches hold other rows in the two tables: there nothing but the mean step is the same
    results = []
    for name, is_repeated in (("weighted", False), ("repeated", True)):
        folder, module = tmp_path / name, ToyModel()
        rows, held_out = (write_toy(folder / part, seed, is_repeated) for part, seed in (("rows", 1), ("held", 2)))
        plan = toy_plan(
            folder, columns=("label", "weight", "features"), batch_size=1000, epochs=8, learning_rate=0.4,
            keeps="best_epoch",
        )  # fmt: skip
        results.append((train(module, toy_loss, rows, plan, ranks, held_out=held_out), module.state_dict()))
    (weighted, one), (repeated, other) = results
    assert 0 < weighted.chosen_epoch < 8
    assert weighted.chosen_epoch == repeated.chosen_epoch
    for a, b in zip(weighted.records, repeated.records, strict=True):
        assert a.held_out_loss == pytest.approx(b.held_out_loss, rel=1e-4)
        assert (a.training_loss or 0) == pytest.approx(b.training_loss or 0, rel=1e-4)  # epoch 0 has none
    for key, tensor in one.items():
        np.testing.assert_allclose(tensor, other[key], rtol=1e-3, atol=1e-4)


def repeated_samples() -> tuple[Any, Any]:
    """Scored samples of weights 1 and 2, and the same with those of weight 2 twice."""
    samples = draw_samples(400)
    samples["weight"] = 1.0 + (np.arange(400) % 3 == 0)
    twice = samples.loc[np.repeat(samples.index, samples["weight"].astype(int))].reset_index(drop=True)
    twice["sample_id"] = [f"{i:04x}-2" for i in range(len(twice))]
    return samples, twice.assign(weight=1.0)


def test_logit_cells_and_bins_of_rows(spark: SparkSession) -> None:
    weighted, twice = (make_samples(spark, samples) for samples in repeated_samples())
    tables = {
        "weighted": build_logit_cells(weighted, make_values(spark), "f"),
        "twice": build_logit_cells(twice, make_values(spark), "f"),
        "without weights": build_logit_cells(twice, make_values(spark), "f", has_weights=False),
    }
    found = {name: collect_cells(table, 4) for name, table in tables.items()}
    for other, tolerance in (("twice", 1e-12), ("without weights", 2.0**-20)):  # logits add up in steps of 2^-20 there
        for column in ("field_value_id", "cell", "weight", "response", "logit"):
            np.testing.assert_allclose(
                getattr(found["weighted"], column), getattr(found[other], column), rtol=1e-12, atol=tolerance
            )
    assert (found["weighted"].n_samples.sum(), found["twice"].n_samples.sum()) == (400, 534)
    bounds = compute_approximate_bounds(twice, "f", 4, 1000).localCheckpoint()
    keys = ["field_value_id", "bin_index"]
    bins = [collect_rows(sum_bins_of_rows(rows, bounds, "f", 4), keys) for rows in (weighted, twice)]
    for a, b in zip(*bins, strict=True):
        for name in (*keys, "sum_weight", "sum_weight_responses", "sum_weight_logit"):
            assert a[name] == pytest.approx(b[name], rel=1e-12), name
    assert sum(row["n_samples"] for row in bins[0]) < sum(row["n_samples"] for row in bins[1])


def test_bounds_of_approx_quantile_count_rows(spark: SparkSession) -> None:
    # 3 rows of logit 0, 1, 2, the last with weight 7: the median of the rows is 1, of the weight 2
    samples = draw_samples(3)
    samples["uncalibrated_logit"], samples["field_value_id_f"] = np.float32([0, 1, 2]), 1
    for weight in (1.0, 7.0):
        rows = make_samples(spark, samples.assign(weight=[1.0, 1.0, weight]))
        bounds = collect_rows(compute_approximate_bounds(rows, "f", 2, 1000), ["field_value_id"])
        assert bounds[0]["bin_bounds"][:2] == [0.0, 1.0]


def test_feature_encodings_are_weighted(spark: SparkSession) -> None:
    # values 1 (weight 1) and 4 (weight 2): mean 9/3 = 3, variance (4 + 2·1)/3 = 2; a null takes no part
    schema = "numeric array<double>, weight double"
    weighted = spark.createDataFrame([([1.0], 1.0), ([4.0], 2.0), ([None], 5.0)], schema)
    twice = spark.createDataFrame([([1.0], 1.0), ([4.0], 1.0), ([4.0], 1.0), ([None], 1.0)], schema)
    for rows in (weighted, twice):
        (encoding,) = learn_numeric_encodings(rows, {"x": None})
        assert (encoding.mean, encoding.scale) == (3.0, pytest.approx(np.sqrt(2), rel=1e-5))


@pytest.fixture(scope="module")
def two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, RunConfig]:
    """Whole runs without auxiliary network: odd shops' rows have weight 2, or stand in the table twice."""
    columns = draw_world(1500)
    odd = np.array([int(shop.split()[1]) % 2 == 1 for shop in columns["shop"]])
    columns |= {"w": (1.0 + odd).tolist(), "part": (["train", "dev", "test"] * 500)}
    twice = np.repeat(np.arange(1500), 1 + odd)
    runs = []
    for name, table, weight in (
        ("weighted", columns, "w"),
        ("twice", {key: [values[i] for i in twice] for key, values in columns.items() if key != "w"}, None),
    ):
        folder = tmp_path_factory.mktemp(name)
        write_input(folder, table)
        changes = {
            "input": {"weight": weight, "truth": "score"},
            "split": {"by": "column", "column": "part"},
            "calibrator": {"do_no_harm": False},
        }
        runs.append(run_stages(spark, make_config(folder, changes)))
    return runs[0], runs[1]


def test_a_whole_run_measures_the_same(two_runs: tuple[RunConfig, RunConfig]) -> None:
    weighted, twice = (json.loads((run.run_dir / "metrics.json").read_text()) for run in two_runs)
    assert weighted["n_test"] == 500 < twice["n_test"]
    for method, metrics in weighted["methods"].items():
        for name in FIELD_METRICS:
            assert metrics[name] == pytest.approx(twice["methods"][method][name], rel=1e-4, abs=1e-6), (method, name)
    assert weighted["methods"]["adacalib"]["log_loss"] < weighted["methods"]["isotonic"]["log_loss"]


def test_a_whole_run_calibrates_the_same_though_ids_differ(
    spark: SparkSession, two_runs: tuple[RunConfig, RunConfig]
) -> None:
    scores: list[dict[Any, float]] = []
    ids: list[dict[str, int]] = []
    for run in two_runs:
        table = io.read_table(spark, run, "calibrated_samples", schemas.calibrated_samples(run.fields))
        rows = collect_rows(table.withColumn("p", F.round("true_probability", 12)), ["sample_id"])
        scores.append({(row["p"], row["split"]): row["calibrated_logit"] for row in rows})
        values = collect_rows(io.read_table(spark, run, "field_values", schemas.FIELD_VALUES), ["field_value_id"])
        ids.append({row["field_value"]: row["field_value_id"] for row in values})
    assert ids[0].keys() == ids[1].keys() and ids[0] != ids[1]
    assert scores[0].keys() == scores[1].keys() and len(scores[0]) == 1500
    np.testing.assert_allclose([scores[1][key] for key in scores[0]], list(scores[0].values()), atol=1e-4)
