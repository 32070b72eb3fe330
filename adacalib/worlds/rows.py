"""Row ids and a world → columns: a pure function, in which a row depends on its id and on no other row.

With σ(t) = 1/(1 + e^-t), c the intercept, z the row's field value, x its four standard normal numbers:

    main   = w·x + context level
    logit  = c + D(main)                                              what the predictor says: monotone, too steep,
    D(m)   = .3 + 1.25·m + .5·tanh(1.5·(m − .5))                       off in level, blind to the rest
    u      = (D(main) − mean) / sd
    truth  = c + main + Σ_i<j w_ij·x_i·x_j + w_context·x              interactions that the predictor misses
               + level_z(day) + slope_z·u + amplitude_z·sin(1.6·u + place_z)
    label  = 1 with probability σ(truth)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit

from adacalib.worlds.kinds import NEW_DAYS_SHARE
from adacalib.worlds.parameters import FIRST_DAY, N_CONTEXTS, N_FEATURES, Stream, World, draw_parameters
from adacalib.worlds.randomness import Floats, Ints, draw_normal, draw_uniform

WAVE_FREQUENCY = 1.6
"""Radians per unit of the standardised un-calibrated logit."""

MEASURED_ROWS = 2**18
"""The first rows of a world, whatever its size; intercept and standardisation are measured on them."""


@dataclass(frozen=True, eq=False)
class Draws:
    """What is drawn for rows before any effect: indices of value, context and day, and x (one array per feature)."""

    value: Ints
    context: Ints
    day: Ints
    x: tuple[Floats, ...]


def make_world(name: str, seed: int) -> World:
    """Makes a world: draws its parameters, standardises its un-calibrated logit, and hits its rate.

    Mean and sd of the un-calibrated logit and the intercept come from the first MEASURED_ROWS rows, so they do not
    depend on how many rows are generated. The same name and seed give the same world.

    Raises:
        UnknownWorld: with the nearest name.
        ValueError: a negative seed.
    """
    world = draw_parameters(name, seed)
    draws = draw_features(world, np.arange(MEASURED_ROWS))
    logit = compute_predictor_logit(world, draws)
    world = replace(world, logit_mean=float(np.mean(logit)), logit_sd=float(np.std(logit)))
    truth = compute_truth_logit(world, draws)

    def miss(intercept: float) -> float:
        return float(np.mean(expit(truth + intercept))) - world.kind.rate

    return replace(world, intercept=float(brentq(miss, -20.0, 20.0, xtol=1e-12)))


def draw_rows(world: World, row_id: Ints) -> dict[str, npt.NDArray[Any]]:
    """Computes the columns of rows.

    Args:
        row_id: from 0, any order, any subset; shape (n,).

    Returns:
        Arrays of length n: row_id, field_value, parent, context (text), day (datetime64[D]), x1 … x4, score (the
        predictor's probability), true_probability, label (0 or 1), is_new (field values that come in the last days).
    """
    draws = draw_features(world, row_id)
    true_probability = expit(compute_truth_logit(world, draws))
    label = draw_uniform(row_id, world.key, Stream.LABEL) < true_probability
    return {
        "row_id": np.asarray(row_id, np.int64),
        "field_value": _name("v", world.kind.n_values)[draws.value],
        "parent": _name("p", world.kind.n_parents)[world.parent_V[draws.value]],
        "day": FIRST_DAY + draws.day,
        **{f"x{i + 1}": column for i, column in enumerate(draws.x)},
        "context": _name("c", N_CONTEXTS)[draws.context],
        "score": expit(compute_predictor_logit(world, draws)),
        "true_probability": true_probability,
        "label": label.astype(np.int32),
        "is_new": world.is_new_V[draws.value],
    }


def draw_features(world: World, row_id: Ints) -> Draws:
    """Draws value, context, day and x of rows; new values get one of the last days."""

    def uniform(stream: Stream) -> Floats:
        return draw_uniform(row_id, world.key, stream)

    value = np.searchsorted(world.cumulative_share_V, uniform(Stream.VALUE), side="right")
    n_days = world.kind.n_days
    n_open = np.where(world.is_new_V[value], np.ceil(NEW_DAYS_SHARE * n_days), n_days)
    return Draws(
        value=value.astype(np.int64),
        context=np.searchsorted(world.cumulative_share_C, uniform(Stream.CONTEXT), side="right").astype(np.int64),
        day=np.floor(n_days - n_open + n_open * uniform(Stream.DAY)).astype(np.int64),
        x=tuple(draw_normal(row_id, world.key, Stream.X + i) for i in range(N_FEATURES)),
    )


def compute_main(world: World, draws: Draws) -> Floats:
    """What the predictor sees: linear in x and the context, in log-odds (mean 0, sd 1)."""
    return world.context_level_C[draws.context] + _weigh(world.main_weight_X, draws)


def distort(main: Floats) -> Floats:
    """D(m) of the module's head: increasing, in log-odds."""
    return np.asarray(0.3 + 1.25 * main + 0.5 * np.tanh(1.5 * (main - 0.5)), np.float64)


def compute_predictor_logit(world: World, draws: Draws) -> Floats:
    """The un-calibrated logit of rows: the distorted main effect, blind to interactions and field."""
    return distort(compute_main(world, draws)) + world.intercept


def compute_truth_logit(world: World, draws: Draws) -> Floats:
    """Log-odds of the true probability of rows."""
    value, x = draws.value, draws.x
    main = compute_main(world, draws)
    u = (distort(main) - world.logit_mean) / world.logit_sd
    logit = main + world.intercept
    # column by column: a matrix product's last bits would depend on the number of rows in the batch
    for i in range(N_FEATURES):
        for j in range(i + 1, N_FEATURES):
            logit += world.pair_weight_XX[i, j] * x[i] * x[j]
    logit += _weigh(world.context_weight_CX[draws.context], draws)
    if not world.kind.has_field_effect:
        return logit
    wave = world.amplitude_V[value] * np.sin(WAVE_FREQUENCY * u + world.place_V[value])
    return np.asarray(logit + world.level_VD[value, draws.day] + world.slope_V[value] * u + wave, np.float64)


def _weigh(weights: Floats, draws: Draws) -> Floats:
    """Σ_i weight_i · x_i; weights of shape (4,) for all rows or (n, 4)."""
    total = np.zeros(len(draws.value))
    for i, column in enumerate(draws.x):
        total += weights[..., i] * column
    return total


def _name(letter: str, n: int) -> npt.NDArray[Any]:
    width = len(str(n - 1))
    return np.array([f"{letter}{index:0{width}}" for index in range(n)], dtype=object)
