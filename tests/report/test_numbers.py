"""How numbers are written, and the noise around them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.report.numbers import (
    compute_pcoc_band,
    compute_rate_interval,
    compute_residual_noise,
    show,
    show_count,
    show_metric,
    show_p_value,
    show_seconds,
    show_signed,
)


def test_numbers_are_written_with_digits_that_tell() -> None:
    assert [show(0.123456, 3), show(None, 3), show(math.nan, 3), show(-1.5, 1)] == ["0.123", "–", "–", "−1.5"]
    assert [show_signed(0.5, 1), show_signed(-0.5, 1), show_signed(None, 1)] == ["+0.5", "−0.5", "–"]
    assert [show_metric("log_loss", 0.5), show_metric("auc", 0.71239), show_metric("pcoc", None)] == [
        "0.50000",
        "0.7124",
        "–",
    ]
    assert [show_count(1234567), show_count(12.34), show_count(None)] == ["1,234,567", "12.3", "–"]
    assert [show_p_value(p) for p in (1e-9, 0.0123, 0.4, None)] == ["p < 0.001", "p = 0.012", "p = 0.40", "–"]
    assert [show_seconds(s) for s in (0.44, 99.9, 124.2, None)] == ["0.4 s", "99.9 s", "2 min 04 s", "–"]


def test_rate_interval_by_hand() -> None:
    # Wilson, rate .5 on 4 samples, z² = 3.8415: center .5; half = 1.96/(1 + .9604) · sqrt(.25/4 + 3.8415/64)
    #   = .99977 · sqrt(.0625 + .060023) = .34996
    assert compute_rate_interval(0.5, 4) == pytest.approx((0.15004, 0.84996), abs=1e-5)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**6), st.floats(0, 1))
def test_rate_interval_holds_the_rate(n_samples: int, rate: float) -> None:
    low, high = compute_rate_interval(rate, n_samples)
    assert 0 <= low <= rate + 1e-12 and rate - 1e-12 <= high <= 1


def test_pcoc_band_by_hand() -> None:
    # Binomial(4, .5) has cumulated 1/16, 5/16, 11/16, 15/16, 1: quantile .025 is 0, .975 is 4. Expected 2: 2/4, 2/0.
    assert compute_pcoc_band(4, 0.5) == (0.5, math.inf)


def test_pcoc_band_holds_about_95_percent_of_random_test_sets() -> None:
    low, high = compute_pcoc_band(2000, 0.1)
    observed = np.random.default_rng(5).binomial(2000, 0.1, 20_000)
    inside = np.mean((200 / observed >= low) & (200 / observed <= high))
    assert 0.94 < inside < 0.97
    assert low == pytest.approx(0.88, abs=0.01) and high == pytest.approx(1.15, abs=0.02)  # 200/226, 200/174


def test_residual_noise_by_hand() -> None:
    # 100 samples of weight 2, Σwp = 100, p̄ = .5: the sum of 100 labels has sd 5, twice that is 10, 1.96 · 10
    assert compute_residual_noise(100, 200.0, 100.0) == pytest.approx(19.6, abs=1e-3)
