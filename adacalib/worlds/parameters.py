"""What a synthetic world is: the parameters of its kind, drawn from a seed.

Letters in names of arrays: V field values, P parents, C contexts, D days, X the four numeric features.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from adacalib.worlds.kinds import WorldKind, count_new_values, find_kind
from adacalib.worlds.randomness import Floats, Ints, draw_normal, draw_uniform, make_key
from adacalib.worlds.shares import compute_shares, compute_zipf_shares

N_FEATURES = 4
N_CONTEXTS = 20
FIRST_DAY = np.datetime64("2024-01-01")

MAIN_SD, MAIN_CONTEXT_SHARE = 1.0, 0.25
"""Log-odds of what the predictor sees, and the context's share of their variance."""
INTERACTION_SD = 0.4
"""Log-odds of the features' interactions: half of the variance among x's, half between x's and the context."""
PARENT_SD, OWN_SD, SLOPE_SD, SHAPE_SD = 0.35, 0.4, 0.2, 0.3
"""Log-odds of a field value's effects."""
SHAPE_LIMIT = 0.55
"""Amplitudes are clipped to ± this, so that few functions of the un-calibrated logit decrease anywhere."""
LEVEL_DRIFT_SD, GLOBAL_DRIFT_SD = 0.4, 0.25
"""Log-odds by which a value's level, and the level of all, have walked from the first day to the last."""


class Stream(IntEnum):
    """One stream of random numbers per use; the numbers are part of every world, so they never change."""

    VALUE, CONTEXT, DAY, LABEL = 0, 1, 2, 3
    X = 10  # and the three after it
    MAIN_WEIGHT, CONTEXT_LEVEL, PAIR_WEIGHT, CONTEXT_WEIGHT = 100, 101, 102, 103
    PARENT, PARENT_LEVEL, OWN_LEVEL, SLOPE = 110, 111, 112, 113
    AMPLITUDE, PLACE = 114, 115
    LEVEL_WALK, GLOBAL_WALK = 120, 121


@dataclass(frozen=True, eq=False)
class World:
    """A world's parameters; rows.py has the equations that use them. Levels and weights are log-odds.

    Attributes:
        key: of the random streams, from name and seed.
        cumulative_share_V: shares of the rows up to and including each value, increasing, the last 1; values are
            sorted by frequency, the new ones after the others.
        cumulative_share_C: the same of the contexts.
        parent_V: index of the value's parent.
        level_VD: the value's level on each day, the level of all on that day included.
        slope_V: what a unit of the standardised un-calibrated logit adds.
        amplitude_V, place_V: of the value's wave over the standardised un-calibrated logit (place in radians).
        pair_weight_XX: weight of x_i · x_j, above the diagonal, 0 elsewhere.
        context_weight_CX: weight of each x in this context.
        logit_mean, logit_sd: of the un-calibrated logit less the intercept: what standardises it.
        intercept: makes the mean true probability the kind's rate.
    """

    name: str
    seed: int
    kind: WorldKind
    key: int
    cumulative_share_V: Floats
    cumulative_share_C: Floats
    parent_V: Ints
    level_VD: Floats
    slope_V: Floats
    amplitude_V: Floats
    place_V: Floats
    main_weight_X: Floats
    context_level_C: Floats
    pair_weight_XX: Floats
    context_weight_CX: Floats
    logit_mean: float = 0.0
    logit_sd: float = 1.0
    intercept: float = 0.0

    @property
    def is_new_V(self) -> npt.NDArray[np.bool_]:
        """Which field values occur in the last days only."""
        return np.arange(self.kind.n_values) >= self.kind.n_values - count_new_values(self.kind)


def draw_parameters(name: str, seed: int) -> World:
    """Draws a world's parameters; its intercept and the un-calibrated logit's mean and sd are still to be measured.

    Args:
        name: one of WORLDS.
        seed: from 0; another seed is another world of the same kind.

    Raises:
        UnknownWorld: with the nearest name.
        ValueError: a negative seed.
    """
    kind = find_kind(name)
    if seed < 0:
        raise ValueError(f"seed {seed} is negative: a seed numbers the worlds of a kind from 0; give 0 or more")
    key = make_key(name, seed)
    share_C = compute_zipf_shares(N_CONTEXTS, 0.5)
    main_weight_X = _scale(_normal(key, Stream.MAIN_WEIGHT, N_FEATURES), MAIN_SD * np.sqrt(1 - MAIN_CONTEXT_SHARE))
    context_level_C = _normal(key, Stream.CONTEXT_LEVEL, N_CONTEXTS)
    context_level_C -= np.sum(share_C * context_level_C)
    context_level_C *= MAIN_SD * np.sqrt(MAIN_CONTEXT_SHARE / np.sum(share_C * context_level_C**2))
    pair_weight_XX = np.triu(_normal(key, Stream.PAIR_WEIGHT, N_FEATURES, N_FEATURES), k=1)
    context_weight_CX = _normal(key, Stream.CONTEXT_WEIGHT, N_CONTEXTS, N_FEATURES)
    # the variance of v·x in context c is |v_c|²
    context_weight_CX *= INTERACTION_SD * np.sqrt(0.5 / np.sum(share_C[:, None] * context_weight_CX**2))
    effect = 1.0 if kind.has_field_effect else 0.0
    amplitude_V = SHAPE_SD * _standard(_normal(key, Stream.AMPLITUDE, kind.n_values))
    return World(
        name=name,
        seed=seed,
        kind=kind,
        key=key,
        cumulative_share_V=_accumulate(compute_shares(kind)),
        cumulative_share_C=_accumulate(share_C),
        parent_V=_draw_parents(key, kind),
        level_VD=effect * _draw_levels(key, kind),
        slope_V=effect * SLOPE_SD * _standard(_normal(key, Stream.SLOPE, kind.n_values)),
        amplitude_V=effect * np.clip(amplitude_V, -SHAPE_LIMIT, SHAPE_LIMIT),
        place_V=2 * np.pi * draw_uniform(np.arange(kind.n_values), key, Stream.PLACE),
        main_weight_X=main_weight_X,
        context_level_C=context_level_C,
        pair_weight_XX=_scale(pair_weight_XX, INTERACTION_SD * np.sqrt(0.5)),
        context_weight_CX=context_weight_CX,
    )


def _draw_parents(key: int, kind: WorldKind) -> Ints:
    place = draw_uniform(np.arange(kind.n_values), key, Stream.PARENT) * kind.n_parents
    return np.asarray(np.floor(place), np.int64)


def _draw_levels(key: int, kind: WorldKind) -> Floats:
    """Level per value and day: parent + own, and where the world drifts two random walks that start at 0."""
    parent_P = PARENT_SD * _standard(_normal(key, Stream.PARENT_LEVEL, kind.n_parents))
    own_V = OWN_SD * _standard(_normal(key, Stream.OWN_LEVEL, kind.n_values))
    level_V = parent_P[_draw_parents(key, kind)] + own_V
    level_VD = np.repeat(level_V[:, None], kind.n_days, axis=1)
    if kind.drifts:
        per_day = 1 / np.sqrt(kind.n_days - 1)
        steps_VD = LEVEL_DRIFT_SD * per_day * _normal(key, Stream.LEVEL_WALK, kind.n_values, kind.n_days)
        steps_D = GLOBAL_DRIFT_SD * per_day * _normal(key, Stream.GLOBAL_WALK, kind.n_days)
        level_VD[:, 1:] += np.cumsum(steps_VD[:, 1:] + steps_D[1:], axis=1)
    return level_VD


def _normal(key: int, stream: Stream, *shape: int) -> Floats:
    return draw_normal(np.arange(np.prod(shape)), key, stream).reshape(shape)


def _standard(values: Floats) -> Floats:
    """Mean 0 and sd 1 exactly: with 13 field values the luck of the draw would decide how strong the field is."""
    return np.asarray((values - np.mean(values)) / np.std(values))


def _scale(weights: Floats, sd: float) -> Floats:
    """Scales weights of independent terms of variance 1 so that their sum has this sd."""
    return np.asarray(weights * (sd / np.sqrt(np.sum(weights**2))))


def _accumulate(share: Floats) -> Floats:
    cumulative = np.cumsum(share)
    cumulative[-1] = 1.0  # rounding must not leave a gap that a uniform number falls into
    return cumulative
