"""What Fig. 3 and Fig. 4 are drawn from: by hand, and from a small trained run."""

from __future__ import annotations

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from adacalib.cells.bin_bounds import BinBounds
from adacalib.cells.functions import build_functions
from adacalib.config import RunConfig, parse_config
from adacalib.io import InputError
from adacalib.manifest import TableMissing
from adacalib.model.checkpoint import ArtifactError
from jobs.compare_figures import count_chosen_bins, describe_value, gather_figures, pick_two_values
from tests.small_runs import draw_world, make_config, run_stage, write_input


def make_value(field_value_id: int, n_samples: int, n_responses: int = 0) -> dict[str, Any]:
    return {
        "field_value_id": field_value_id,
        "field_value": f"v{field_value_id}",
        "value_kind": "value",
        "n_samples": n_samples,
        "n_responses": n_responses,
    }


def test_the_second_value_is_about_ten_times_rarer() -> None:
    # a tenth of 1000 is 100; in ratio 40 (2.5 times less) is nearer than 300 (3 times more)
    values = [make_value(3, 40), make_value(2, 300), make_value(1, 1000), make_value(4, 1)]
    assert [row["field_value_id"] for row in pick_two_values(values)] == [1, 3]
    assert pick_two_values([make_value(7, 5)]) == [make_value(7, 5)]
    assert pick_two_values([]) == []
    assert [row["field_value_id"] for row in pick_two_values([make_value(2, 9), make_value(1, 9)])] == [1, 2]


def test_functions_are_taken_at_the_mean_logit_of_the_bins() -> None:
    bounds, knots = np.tile([-2.0, 0.0, 2.0], (2, 1)), np.array([[-2.0, 0.0, 2.0], [-1.0, 1.0, 3.0]])
    functions = build_functions(BinBounds(bounds, np.array([2, 2])), knots)
    bins = [
        {
            "field_value_id": 1,
            "n_bins_candidate": k,
            "bin_index": i,
            "n_samples": n,
            "response_rate": r,
            "mean_logit": m,
        }
        for k, i, n, r, m in ((30, 0, 9, 0.4, 9.0), (20, 2, 0, None, None), (20, 1, 4, 0.5, 0.5), (20, 0, 5, 0.2, -1.0))
    ]
    found = describe_value(make_value(1, 9, 3), bins, {"adacalib": functions})
    # id 1 adds 1 to the logit: σ(0) = .5 and σ(1.5) = .8176; the empty bin has no mean logit
    assert found["adacalib"] == pytest.approx([0.5, 0.8176, None], abs=1e-4)
    assert found["response_rate"] == [0.2, 0.5, None] and found["bin_samples"] == [5, 4, 0]
    assert (found["field_value"], found["n_samples"], found["n_responses"]) == ("v1", 9, 3)
    # without a candidate of 20 the largest counts
    others = [row | {"n_bins_candidate": 10 if row["n_bins_candidate"] == 20 else 5} for row in bins]
    assert describe_value(make_value(1, 9), others, {})["mean_logit"] == [-1.0, 0.5, None]


def test_chosen_bins_by_hand() -> None:
    # 12 values, 1 to 12 positives: the groups are of 2, 2 and eight times 1; the first three chose 5, the last two 20
    values = [make_value(i, 100, i) for i in range(12, 0, -1)]
    chosen = [20, 5, 5, 5, *[10] * 7, 20, 20]
    found = count_chosen_bins(values, chosen, (5, 10, 20))
    assert (found["smallest"], found["largest"]) == (5, 20)
    assert found["groups"][0] == {
        **{"n_values": 2, "min_responses": 1, "max_responses": 2, "n_smallest": 2, "n_largest": 0},
    }
    assert [group["n_smallest"] for group in found["groups"]] == [2, 1, *[0] * 8]
    assert [group["n_largest"] for group in found["groups"]] == [*[0] * 8, 1, 1]
    assert count_chosen_bins(values, (), (5,)) == {"smallest": 5, "largest": 5, "groups": []}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([5, 10, 20])), min_size=1, max_size=40))
def test_groups_hold_every_value_once_in_order(entries: list[tuple[int, int]]) -> None:
    values = [make_value(i + 1, 1, n) for i, (n, _) in enumerate(entries)]
    groups = count_chosen_bins(values, [0, *(k for _, k in entries)], (5, 10, 20))["groups"]
    sizes = [group["n_values"] for group in groups]
    assert sum(sizes) == len(entries) and max(sizes) - min(sizes) <= 1 and len(groups) == min(10, len(entries))
    assert sum(group["n_largest"] for group in groups) == sum(k == 20 for _, k in entries)
    assert all(a["max_responses"] <= b["min_responses"] for a, b in pairwise(groups))


VARIANTS: dict[str, dict[str, Any]] = {
    "adacalib": {},
    "neucalib": {"mode": "neucalib", "epochs": 1},
    "adacalib_paper": {"mode": "paper", "epochs": 1},
}


@pytest.fixture(scope="module")
def seed_dir(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed of a comparison as jobs/experiments.py lays it out, own scores, 12 field values."""
    folder = tmp_path_factory.mktemp("figures")
    write_input(folder, draw_world(4000))
    shared = {"name": "seed_7", "runs_dir": str(folder / "runs" / "small" / "compare")}
    base = make_config(folder, {**shared, "calibrator": {"mode": "paper"}, "bins": {"n_bins_candidates": [5, 10, 20]}})
    for stage in base.stages[: base.stages.index("train_calibrator")]:
        run_stage(spark, base, stage)
    for name, calibrator in VARIANTS.items():
        own = {"name": name, "runs_dir": str(base.run_dir), "inputs_from": str(base.run_dir), "calibrator": calibrator}
        own["bins"] = {"n_bins_candidates": [20] if name == "adacalib" else [5, 10, 20]}
        run_stage(spark, parse_config(base.model_dump(mode="json") | own), "train_calibrator")
    return base.run_dir


@pytest.fixture
def config(seed_dir: Path) -> RunConfig:
    return make_config(seed_dir.parents[3])


def test_figures_of_a_trained_run(config: RunConfig, seed_dir: Path) -> None:
    figures = gather_figures(config, seed_dir)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    first, second = figures["figure_3"]
    values = pq.read_table(seed_dir / "tables" / "field_values").to_pylist()
    seen = sorted((row["n_samples"] for row in values if row["field_value_id"] > 0), reverse=True)
    assert first["n_samples"] == seen[0] and second["n_samples"] in seen[1:]
    assert sum(first["bin_samples"]) == first["n_samples"] and len(first["bin_samples"]) == 20
    for name in ("adacalib", "neucalib"):
        shown = [height for height in first[name] if height is not None]
        assert len(shown) == 20 and all(0 < height < 1 for height in shown)
    assert first["adacalib"] == sorted(first["adacalib"])
    # the score knows nothing of the shop: AdaCalib's function is nearer to what was observed than the global one
    misses = {
        name: math.fsum(abs(a - b) for a, b in zip(first[name], first["response_rate"], strict=True))
        for name in ("adacalib", "neucalib")
    }
    assert misses["adacalib"] < misses["neucalib"]
    groups = figures["figure_4"]["groups"]
    assert sum(group["n_values"] for group in groups) == len(seen)
    chosen = json.loads((seed_dir / "adacalib_paper" / "unified" / "training.json").read_text())["chosen_candidates"]
    assert sum(group["n_smallest"] for group in groups) == chosen[1:].count(5)
    assert sum(group["n_largest"] for group in groups) == chosen[1:].count(20)


def test_one_candidate_leaves_fig_4_empty(config: RunConfig, seed_dir: Path) -> None:
    fixed = parse_config(config.model_dump(mode="json") | {"bins": {"n_bins_candidates": [20]}})
    assert gather_figures(fixed, seed_dir)["figure_4"] == {"smallest": 20, "largest": 20, "groups": []}


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ("tables/bin_statistics", TableMissing, "compute_bin_statistics"),
        ("adacalib_paper/unified/training.json", InputError, r"training\.json: cannot be read"),
        ("neucalib/unified", ArtifactError, "neucalib"),
    ],
)
def test_what_is_missing_is_named(
    config: RunConfig, seed_dir: Path, tmp_path: Path, missing: str, error: type[Exception], words: str
) -> None:
    copy = tmp_path / "seed_7"
    shutil.copytree(seed_dir, copy)
    path = copy / missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with pytest.raises(error, match=words):
        gather_figures(config, copy)
