"""Counter-based random numbers: known outputs, independence of order, distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from adacalib.worlds.randomness import draw_normal, draw_uniform, hash_counters, make_key

COUNTERS = np.arange(20_000)


def test_hash_is_splitmix64() -> None:
    # the first outputs of the authors' C code (xoshiro.di.unimi.it/splitmix64.c) for the seed 1234567
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert hash_counters(np.arange(4), 1234567).tolist() == expected


def test_extreme_seed_and_counters_wrap_around_in_silence() -> None:
    with np.errstate(all="raise"):
        hashes = hash_counters(np.array([0, 2**62, 2**63 - 1]), 2**64 - 1)
    assert len(set(hashes.tolist())) == 3


def test_uniform_is_the_hash_over_two_to_the_52() -> None:
    # stream 3 of key 9 is seeded with splitmix64's output number 3 of seed 9
    start = int(hash_counters(np.array([3]), 9)[0])
    hashed = int(hash_counters(np.array([5]), start)[0])
    assert draw_uniform(np.array([5]), 9, 3)[0] == ((hashed >> 12) + 0.5) / 2**52


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40),
    st.integers(0, 2**64 - 1),
    st.integers(0, 1000),
)
def test_number_depends_on_its_counter_alone(counters: list[int], key: int, stream: int) -> None:
    together = draw_normal(np.array(counters), key, stream)
    alone = [draw_normal(np.array([counter]), key, stream)[0] for counter in counters]
    assert together.tolist() == alone
    assert np.isfinite(together).all()
    uniform = draw_uniform(np.array(counters), key, stream)
    assert ((uniform > 0) & (uniform < 1)).all()


@pytest.mark.parametrize("key", [0, 1, make_key("cvr_like", 1), 2**64 - 1])
def test_distributions_fit(key: int) -> None:
    assert kstest(draw_uniform(COUNTERS, key, 0), "uniform").pvalue > 1e-3
    assert kstest(draw_normal(COUNTERS, key, 0), "norm").pvalue > 1e-3


def test_streams_keys_and_neighbours_are_uncorrelated() -> None:
    base = draw_normal(COUNTERS, 7, 0)
    others = [draw_normal(COUNTERS, 7, 1), draw_normal(COUNTERS, 8, 0), np.roll(base, 1)]
    for other in others:
        # the correlation of 20,000 independent pairs has sd .0071
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.03


def test_key_tells_names_and_seeds_apart() -> None:
    keys = {make_key(name, seed) for name in ("cvr_like", "ctr_like") for seed in range(100)}
    assert len(keys) == 200
    assert all(0 <= key < 2**64 for key in keys)
    assert make_key("cvr_like", 1) == make_key("cvr_like", 1)
