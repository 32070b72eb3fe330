"""Kinds of worlds: names, frequencies."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from adacalib.worlds.kinds import (
    WORLDS,
    UnknownWorld,
    WorldKind,
    count_new_values,
    find_kind,
)
from adacalib.worlds.shares import compute_shares, compute_zipf_shares


def test_zipf_by_hand() -> None:
    # 1, 1/2, 1/3 over their sum 11/6
    assert_allclose(compute_zipf_shares(3, 1.0), [6 / 11, 3 / 11, 2 / 11])
    assert_allclose(compute_zipf_shares(4, 0.0), [0.25] * 4)


def test_shares_by_hand() -> None:
    # 20 values, 5 % of them new: 19 share .99 of the rows, the new one has .01
    kind = WorldKind(n_values=20, n_parents=2, zipf_exponent=0.0, rate=0.1)
    assert count_new_values(kind) == 1
    assert_allclose(compute_shares(kind), [0.99 / 19] * 19 + [0.01])


@pytest.mark.parametrize("name", WORLDS)
def test_shares_sum_to_one_and_fall_among_old_and_among_new(name: str) -> None:
    kind = find_kind(name)
    share, n_old = compute_shares(kind), kind.n_values - count_new_values(kind)
    assert len(share) == kind.n_values
    assert_allclose(share.sum(), 1.0)
    assert (np.diff(share[:n_old]) < 0).all()
    assert (np.diff(share[n_old:]) < 0).all()
    # the ratio of the first and the tenth value is 10^exponent
    assert_allclose(share[0] / share[9], 10**kind.zipf_exponent)


def test_worlds_without_new_values() -> None:
    assert [name for name in WORLDS if not count_new_values(WORLDS[name])] == ["public_like", "no_effect"]
    assert count_new_values(WORLDS["cvr_like"]) == 27  # 5 % of 542


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cvr-like", "did you mean cvr_like"),
        ("ctr", "did you mean ctr_like"),
        ("drift", "did you mean drifting"),
        ("xyz", "worlds: cvr_like, ctr_like, public_like, no_effect, drifting"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownWorld, match=f"unknown world '{name}' .*{hint}"):
        find_kind(name)
