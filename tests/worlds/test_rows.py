"""Rows of a world: against plain loops, whatever the partition, and what their truth promises."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from adacalib.worlds.kinds import WORLDS
from adacalib.worlds.parameters import World
from adacalib.worlds.rows import distort, draw_rows, make_world
from adacalib.worlds.shares import compute_shares

N_ROWS = 200_000


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {name: make_world(name, seed=1) for name in WORLDS}


@pytest.fixture(scope="module")
def tables(worlds: dict[str, World]) -> dict[str, dict[str, np.ndarray]]:
    # rows beyond those that the intercept is measured on
    return {name: draw_rows(world, np.arange(10**9, 10**9 + N_ROWS)) for name, world in worlds.items()}


def splitmix64(seed: int, n: int) -> int:
    """Output number n (from 0), in Python's own whole numbers."""
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def uniform(world: World, stream: int, row_id: int) -> float:
    return ((splitmix64(splitmix64(world.key, stream), row_id) >> 12) + 0.5) / 2**52


def find_place(cumulative: np.ndarray, number: float) -> int:
    return next(index for index, bound in enumerate(cumulative) if number < bound)


def oracle_row(world: World, row_id: int) -> dict[str, Any]:
    """One row from the parameters, with plain loops and no NumPy."""
    n_days, is_drifting = (60, True) if world.name == "drifting" else (30, False)
    value = find_place(world.cumulative_share_V, uniform(world, 0, row_id))
    context = find_place(world.cumulative_share_C, uniform(world, 1, row_id))
    n_new = {"cvr_like": 27, "ctr_like": 48, "drifting": 27}.get(world.name, 0)
    is_new = value >= len(world.slope_V) - n_new
    first = n_days * 5 // 6 if is_new else 0
    day = first + math.floor((n_days - first) * uniform(world, 2, row_id))
    x = [NormalDist().inv_cdf(uniform(world, 10 + i, row_id)) for i in range(4)]

    main = world.context_level_C[context] + sum(world.main_weight_X[i] * x[i] for i in range(4))
    distorted = 0.3 + 1.25 * main + 0.5 * math.tanh(1.5 * (main - 0.5))
    u = (distorted - world.logit_mean) / world.logit_sd
    truth = world.intercept + main
    for i in range(4):
        truth += world.context_weight_CX[context][i] * x[i]
        for j in range(i + 1, 4):
            truth += world.pair_weight_XX[i][j] * x[i] * x[j]
    if world.name != "no_effect":
        truth += world.level_VD[value][day if is_drifting else 0] + world.slope_V[value] * u
        truth += world.amplitude_V[value] * math.sin(1.6 * u + world.place_V[value])
    probability = 1 / (1 + math.exp(-truth))
    return {
        "row_id": row_id,
        "field_value": f"v{value:03}" if len(world.slope_V) > 100 else f"v{value:02}",
        "parent": f"p{world.parent_V[value]:02}" if len(world.slope_V) > 100 else f"p{world.parent_V[value]}",
        "day": np.datetime64("2024-01-01") + day,
        **{f"x{i + 1}": x[i] for i in range(4)},
        "context": f"c{context:02}",
        "score": 1 / (1 + math.exp(-world.intercept - distorted)),
        "true_probability": probability,
        "label": int(uniform(world, 3, row_id) < probability),
        "is_new": is_new,
    }


@pytest.mark.parametrize("name", WORLDS)
def test_rows_equal_the_oracle(worlds: dict[str, World], name: str) -> None:
    ids = np.array([*range(300), 10**6, 10**9, 10**12])
    rows = draw_rows(worlds[name], ids)
    expected = [oracle_row(worlds[name], int(row_id)) for row_id in ids]
    assert list(rows) == list(expected[0])
    for column, values in rows.items():
        wanted = [row[column] for row in expected]
        if values.dtype == np.float64:
            assert_allclose(values, wanted, rtol=1e-9, atol=1e-12, err_msg=column)
        else:
            assert values.tolist() == np.array(wanted, dtype=values.dtype).tolist(), column
    if WORLDS[name].has_new_values:
        assert rows["is_new"].any(), "the case must cover a new value"
    assert rows["label"].any()


def test_distortion_by_hand() -> None:
    # at m = .5 the tanh is 0: .3 + .625; far above it is 1, far below -1
    assert_allclose(distort(np.array([0.5, 10.0, -10.0])), [0.925, 13.3, -12.7], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=60), st.sampled_from(sorted(WORLDS)))
def test_row_is_the_same_alone_and_in_any_batch(worlds: dict[str, World], ids: list[int], name: str) -> None:
    together = draw_rows(worlds[name], np.array(ids))
    for position, row_id in enumerate(ids):
        alone = draw_rows(worlds[name], np.array([row_id]))
        for column, values in together.items():
            assert values[position] == alone[column][0], column  # to the last bit


def test_same_rows_under_other_partitions(worlds: dict[str, World]) -> None:
    whole = draw_rows(worlds["cvr_like"], np.arange(10_007))
    parts = [draw_rows(worlds["cvr_like"], ids) for ids in np.array_split(np.arange(10_007), 13)]
    for column, values in whole.items():
        assert_array_equal(values, np.concatenate([part[column] for part in parts]), err_msg=column)


def test_no_rows_is_an_empty_table(worlds: dict[str, World]) -> None:
    assert {len(values) for values in draw_rows(worlds["cvr_like"], np.array([], np.int64)).values()} == {0}


@pytest.mark.parametrize("name", WORLDS)
def test_rates_hit_their_target(tables: dict[str, dict[str, np.ndarray]], name: str) -> None:
    target = {"cvr_like": 0.015, "ctr_like": 0.02, "public_like": 0.04, "no_effect": 0.015, "drifting": 0.015}[name]
    truth, label = tables[name]["true_probability"], tables[name]["label"]
    # 4 standard errors; the intercept's own sample adds to the first
    assert abs(truth.mean() - target) < 4 * truth.std() * math.sqrt(1 / N_ROWS + 1 / 2**18)
    assert abs(label.mean() - truth.mean()) < 4 * math.sqrt((truth * (1 - truth)).mean() / N_ROWS)


@pytest.mark.parametrize("name", WORLDS)
def test_labels_follow_the_truth_in_every_bin(tables: dict[str, dict[str, np.ndarray]], name: str) -> None:
    truth, label = tables[name]["true_probability"], tables[name]["label"]
    parts = np.array_split(np.argsort(truth), 20)
    # Σ (Σy − Σp)² / Σp(1 − p) over 20 bins is chi-squared with 20 degrees
    statistic = sum(
        (label[part].sum() - truth[part].sum()) ** 2 / (truth[part] * (1 - truth[part])).sum() for part in parts
    )
    assert statistic < chi2.ppf(1 - 1e-5, 20)
    # the predictor is wrong: the same measure of its score is far outside
    score = tables[name]["score"]
    wrong = sum((label[part].sum() - score[part].sum()) ** 2 / score[part].sum() for part in parts)
    assert wrong > 5 * chi2.ppf(1 - 1e-5, 20)


@pytest.mark.parametrize("name", WORLDS)
def test_values_have_zipf_frequencies(tables: dict[str, dict[str, np.ndarray]], name: str) -> None:
    value = np.array([int(text[1:]) for text in tables[name]["field_value"]])
    counts = np.bincount(value, minlength=WORLDS[name].n_values)
    expected = compute_shares(WORLDS[name]) * N_ROWS
    statistic = np.sum((counts - expected) ** 2 / expected)
    assert statistic < chi2.ppf(1 - 1e-5, WORLDS[name].n_values - 1)


@pytest.mark.parametrize("name", ["cvr_like", "ctr_like", "drifting"])
def test_new_values_hold_one_percent_and_come_last(tables: dict[str, dict[str, np.ndarray]], name: str) -> None:
    rows = tables[name]
    is_new, day = rows["is_new"], (rows["day"] - np.datetime64("2024-01-01")).astype(int)
    n_days = WORLDS[name].n_days
    assert abs(is_new.mean() - 0.01) < 4 * math.sqrt(0.01 * 0.99 / N_ROWS)
    assert sorted(set(day[is_new])) == list(range(n_days - n_days // 6, n_days))
    assert sorted(set(day[~is_new])) == list(range(n_days))
    assert not set(rows["field_value"][is_new]) & set(rows["field_value"][~is_new])


def compare_by_value(rows: dict[str, np.ndarray], p: np.ndarray) -> float:
    """Chi-squared of the labels summed by value, given p, over its 1e-5 quantile: below 1, p explains the values."""
    _, index = np.unique(rows["field_value"], return_inverse=True)
    observed, expected = np.bincount(index, rows["label"]), np.bincount(index, p)
    enough = expected > 5
    statistic = np.sum((observed - expected)[enough] ** 2 / np.bincount(index, p * (1 - p))[enough])
    return float(statistic / chi2.ppf(1 - 1e-5, enough.sum()))


@pytest.mark.parametrize("name", WORLDS)
def test_field_matters_but_in_no_effect(tables: dict[str, dict[str, np.ndarray]], name: str) -> None:
    rows = tables[name]
    levelled = rows["score"] * rows["label"].mean() / rows["score"].mean()
    assert compare_by_value(rows, rows["true_probability"]) < 1
    if name == "no_effect":
        assert compare_by_value(rows, levelled) < 1  # the score, right on average, is right for every value
    else:
        assert compare_by_value(rows, levelled) > 3


def test_truth_of_no_effect_is_blind_to_the_field(worlds: dict[str, World]) -> None:
    changed = World(**{**vars(worlds["no_effect"]), "parent_V": worlds["no_effect"].parent_V[::-1].copy()})
    other = World(**{**vars(changed), "cumulative_share_V": np.linspace(1 / 542, 1, 542)})
    before, after = draw_rows(worlds["no_effect"], np.arange(1000)), draw_rows(other, np.arange(1000))
    assert (before["field_value"] != after["field_value"]).any()
    assert_array_equal(before["true_probability"], after["true_probability"])


@pytest.mark.parametrize("name", ["cvr_like", "ctr_like", "public_like", "drifting"])
def test_function_of_the_logit_increases_almost_everywhere(worlds: dict[str, World], name: str) -> None:
    world = worlds[name]
    u = np.linspace(-2.5, 2.5, 201)
    main = np.linspace(-9, 9, 5001)
    main_of_u = np.interp(u, (distort(main) - world.logit_mean) / world.logit_sd, main)
    wave_VU = world.amplitude_V[:, None] * np.sin(1.6 * u + world.place_V[:, None])
    function_VU = main_of_u + world.slope_V[:, None] * u + wave_VU
    density = np.exp(-(u[1:] ** 2) / 2) / np.exp(-(u[1:] ** 2) / 2).sum()
    decreasing = ((np.diff(function_VU, axis=1) < 0) @ density).mean()
    assert decreasing < 0.02


def test_shapes_are_there_to_be_found(worlds: dict[str, World]) -> None:
    # what is left of the waves after a line in u (level and slope) is still .15 or more
    world = worlds["cvr_like"]
    u = np.sort(np.random.default_rng(0).normal(size=400))
    wave_VU = world.amplitude_V[:, None] * np.sin(1.6 * u + world.place_V[:, None])
    basis = np.column_stack([np.ones_like(u), u])
    left_VU = wave_VU - (basis @ np.linalg.lstsq(basis, wave_VU.T, rcond=None)[0]).T
    assert left_VU.std() > 0.15
