"""Random numbers that are a function of (key, stream, counter): no state, no order, no partitions.

The generator is splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), whose n-th
output is a hash of seed + n · GAMMA: row i gets its numbers without those of the rows before it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def make_key(name: str, seed: int) -> int:
    """Turns a name and a seed into 64 bits: worlds of one seed share nothing, nor do the seeds of one world."""
    return int.from_bytes(hashlib.blake2b(f"{name}/{seed}".encode(), digest_size=8).digest(), "little")


def hash_counters(counter: Ints, start: int) -> Hashes:
    """The outputs number `counter` (from 0) of splitmix64 seeded with `start`.

    Args:
        counter: whole numbers from 0, any shape, in any order; the result has its shape.
        start: 0 ≤ start < 2^64.
    """
    # arrays wrap around at 2^64 in silence, which is what is wanted; scalars would warn
    bits = (np.atleast_1d(counter).astype(np.uint64) + np.uint64(1)) * _GAMMA + np.uint64(start)
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


def draw_uniform(counter: Ints, key: int, stream: int) -> Floats:
    """One uniform number per counter, strictly between 0 and 1.

    Args:
        counter: whole numbers from 0, any shape.
        key: 0 ≤ key < 2^64, from make_key.
        stream: from 0; streams of one key are independent of each other.
    """
    start = int(hash_counters(np.array([stream]), key)[0])
    # 52 bits and a half: with 53 the largest would round to 1, whose normal quantile is infinite
    return np.asarray(((hash_counters(counter, start) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def draw_normal(counter: Ints, key: int, stream: int) -> Floats:
    """One standard normal number per counter, by the inverse of the distribution function; always finite."""
    return np.asarray(ndtri(draw_uniform(counter, key, stream)), np.float64)
