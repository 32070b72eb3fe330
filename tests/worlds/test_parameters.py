"""Parameters of a world: their sizes, and what a kind switches off."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from numpy.testing import assert_allclose

from adacalib.worlds.kinds import WORLDS
from adacalib.worlds.parameters import World, draw_parameters

SEEDS = range(20)


def array_of(world: World, name: str) -> np.ndarray:
    return np.asarray(getattr(world, name))


def test_same_name_and_seed_same_world_and_another_seed_another() -> None:
    one, same, other = draw_parameters("cvr_like", 4), draw_parameters("cvr_like", 4), draw_parameters("cvr_like", 5)
    arrays = [field.name for field in fields(World) if isinstance(getattr(one, field.name), np.ndarray)]
    assert len(arrays) == 11
    for name in arrays:
        assert (array_of(one, name) == array_of(same, name)).all(), name
        if not name.startswith("cumulative"):  # shares belong to the kind
            assert (array_of(one, name) != array_of(other, name)).any(), name


@pytest.mark.parametrize("name", WORLDS)
def test_main_and_interactions_have_their_sd(name: str) -> None:
    world = draw_parameters(name, 3)
    share_C = np.diff(world.cumulative_share_C, prepend=0)
    # x are independent of variance 1: |w|² of the main effect is .75, the context's variance .25
    assert_allclose(np.sum(world.main_weight_X**2), 0.75)
    assert_allclose([share_C @ world.context_level_C, share_C @ world.context_level_C**2], [0, 0.25], atol=1e-12)
    # half of .4² among pairs, half between x and context
    assert_allclose(np.sum(world.pair_weight_XX**2), 0.08)
    assert_allclose(share_C @ np.sum(world.context_weight_CX**2, axis=1), 0.08)
    assert (np.tril(world.pair_weight_XX) == 0).all()


@pytest.mark.parametrize("name", ["cvr_like", "ctr_like", "public_like", "drifting"])
def test_value_effects_have_their_sd(name: str) -> None:
    worlds = [draw_parameters(name, seed) for seed in SEEDS]
    assert_allclose([world.slope_V.std() for world in worlds], 0.2)
    assert_allclose([world.slope_V.mean() for world in worlds], 0, atol=1e-12)
    # parents .35 and own .4 add up to .53; the share of a parent among few values is luck
    assert_allclose(np.mean([world.level_VD[:, 0].std() for world in worlds]), 0.53, atol=0.05)
    # normal of sd .3, clipped at .55: .29
    assert_allclose(np.mean([world.amplitude_V.std() for world in worlds]), 0.29, atol=0.02)
    assert max(np.abs(world.amplitude_V).max() for world in worlds) <= 0.55


def test_siblings_are_alike() -> None:
    world = draw_parameters("ctr_like", 1)
    level_V = world.level_VD[:, 0]
    assert set(world.parent_V) == set(range(36))
    mean_P = np.array([level_V[world.parent_V == parent].mean() for parent in range(36)])
    # about 27 children of sd .4 each: the mean of a parent's children has sd √(.35² + .4²/27) = .36
    assert_allclose(mean_P.std(), 0.36, atol=0.06)
    assert_allclose((level_V - mean_P[world.parent_V]).std(), 0.4, atol=0.03)


def test_no_effect_has_no_value_parameter_but_0() -> None:
    world = draw_parameters("no_effect", 1)
    for effect in (world.level_VD, world.slope_V, world.amplitude_V):
        assert (effect == 0).all()


def test_levels_stand_still_unless_the_world_drifts() -> None:
    still = draw_parameters("cvr_like", 1)
    assert (still.level_VD == still.level_VD[:, :1]).all()
    assert still.level_VD.shape == (542, 30)


def test_levels_walk_in_the_drifting_world() -> None:
    worlds = [draw_parameters("drifting", seed) for seed in SEEDS]
    change_SV = np.array([world.level_VD[:, -1] - world.level_VD[:, 0] for world in worlds])
    assert worlds[0].level_VD.shape == (542, 60)
    assert_allclose(np.mean(change_SV.std(axis=1)), 0.4, rtol=0.03)  # of the values, around the drift of all
    assert 0.15 < change_SV.mean(axis=1).std() < 0.36  # 20 draws of a normal of sd .25
    steps_VD = np.diff(worlds[0].level_VD, axis=1)
    assert_allclose(steps_VD.std(axis=0), 0.4 / np.sqrt(59), rtol=0.15)  # a walk, no jump


def test_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"seed -1 is negative.*give 0 or more"):
        draw_parameters("cvr_like", -1)
