"""Numbers: how they are written, and the noise that sampling puts on them."""

from __future__ import annotations

import math

from scipy.stats import binom

_Z = 1.959963984540054  # 95 % of a normal

UNDEFINED = "–"

DIGITS = {
    "field_rce": 4,
    "field_rce_terciles": 4,
    "field_rce_all_samples": 4,
    "field_ece": 5,
    "pcoc": 4,
    "log_loss": 5,
    "auc": 4,
    "field_auc": 4,
}
"""Digits behind the point, per metric: about a tenth of what sampling noise moves on a hundred thousand samples."""


def show(value: float | None, digits: int) -> str:
    """A number with so many digits behind the point; – for None, NaN and infinity."""
    return UNDEFINED if value is None or not math.isfinite(value) else f"{value:.{digits}f}".replace("-", "−")


def show_metric(name: str, value: float | None) -> str:
    """A metric with the digits that suit it."""
    return show(value, DIGITS[name])


def show_signed(value: float | None, digits: int) -> str:
    """A difference with its sign; – for None."""
    text = show(value, digits)
    return text if text == UNDEFINED or text.startswith("−") else f"+{text}"


def show_count(value: float | None) -> str:
    """A count with thousands separated; one digit behind the point where it is no whole number (weights, Σp)."""
    if value is None or not math.isfinite(value):
        return UNDEFINED
    return (f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}").replace("-", "−")


def show_p_value(value: float | None) -> str:
    """A p value: p < 0.001, or p = with two digits that tell."""
    if value is None:
        return UNDEFINED
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def show_seconds(seconds: float | None) -> str:
    """A duration: 0.4 s, 73.8 s, 12 min 04 s."""
    if seconds is None:
        return UNDEFINED
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def compute_rate_interval(rate: float, n_samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a response rate (Wilson 1927).

    Args:
        rate: observed rate, in [0, 1].
        n_samples: samples it is observed on, at least 1.
    """
    center = (rate + _Z**2 / (2 * n_samples)) / (1 + _Z**2 / n_samples)
    half = _Z / (1 + _Z**2 / n_samples) * math.sqrt(rate * (1 - rate) / n_samples + _Z**2 / (4 * n_samples**2))
    return max(center - half, 0.0), min(center + half, 1.0)


def compute_pcoc_band(n_samples: int, mean_score: float) -> tuple[float, float]:
    """Between which values expected / observed responses lies in 95 % of test sets if the scores are right.

    The observed responses are then Binomial(n_samples, mean_score) (a little wider than with the single scores).

    Args:
        n_samples: test samples of the field value, at least 1.
        mean_score: mean score, probability above 0.

    Returns:
        (low, high), low ≤ 1 ≤ high; high is infinite where no response at all is likely enough.
    """
    expected = n_samples * mean_score
    fewest, most = (float(binom.ppf(share, n_samples, min(mean_score, 1.0))) for share in (0.025, 0.975))
    low = expected / most if most > 0 else 1.0
    return min(low, 1.0), max(expected / fewest, 1.0) if fewest > 0 else math.inf


def compute_residual_noise(n_samples: int, weight: float, score_sum: float) -> float:
    """Half of the 95 % range of Σp − Σy if the scores are right: 1.96·sqrt(Σp(1 − p̄)), with the mean weight.

    Args:
        n_samples: test samples of the field value, at least 1.
        weight: sum of their weights, > 0.
        score_sum: Σ w·p.
    """
    mean_score = min(score_sum / weight, 1.0)
    return _Z * math.sqrt(score_sum * (1 - mean_score) * weight / n_samples)
