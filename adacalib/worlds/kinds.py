"""The kinds of synthetic worlds, by name. Imports no numbers, so that help is quick."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

NEW_VALUES_SHARE, NEW_ROWS_SHARE, NEW_DAYS_SHARE = 0.05, 0.01, 1 / 6
"""Share of the field values that are new, of the rows that they hold, and of the days, the last ones, they come in."""


class UnknownWorld(ValueError):
    """There is no world of that name; the message has the nearest."""


@dataclass(frozen=True)
class WorldKind:
    """What is fixed for a world of a given name, whatever the seed.

    Attributes:
        n_values: number of field values, new ones included.
        n_parents: number of categories that field values belong to.
        zipf_exponent: the share of the r-th most frequent value is proportional to r^-exponent.
        rate: mean true probability.
        n_days: days of the world, from 2024-01-01.
        has_field_effect: without it the truth does not depend on the field at all.
        has_new_values: some values occur in the last days only.
        drifts: levels walk over the days.
    """

    n_values: int
    n_parents: int
    zipf_exponent: float
    rate: float
    n_days: int = 30
    has_field_effect: bool = True
    has_new_values: bool = True
    drifts: bool = False


WORLDS = {
    "cvr_like": WorldKind(n_values=542, n_parents=24, zipf_exponent=1.1, rate=0.015),
    "ctr_like": WorldKind(n_values=969, n_parents=36, zipf_exponent=1.1, rate=0.02),
    "public_like": WorldKind(n_values=13, n_parents=4, zipf_exponent=1.1, rate=0.04, has_new_values=False),
    "no_effect": WorldKind(
        n_values=542, n_parents=24, zipf_exponent=1.1, rate=0.015, has_field_effect=False, has_new_values=False
    ),
    "drifting": WorldKind(n_values=542, n_parents=24, zipf_exponent=1.1, rate=0.015, n_days=60, drifts=True),
}


def find_kind(name: str) -> WorldKind:
    """The kind of world of that name.

    Raises:
        UnknownWorld: with the nearest name.
    """
    if name in WORLDS:
        return WORLDS[name]
    near = difflib.get_close_matches(name.replace("-", "_"), WORLDS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"worlds: {', '.join(WORLDS)}"
    raise UnknownWorld(f"unknown world {name!r} ({hint})")


def count_new_values(kind: WorldKind) -> int:
    """Number of field values that occur in the last days only."""
    return round(NEW_VALUES_SHARE * kind.n_values) if kind.has_new_values else 0
