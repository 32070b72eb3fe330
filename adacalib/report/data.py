"""What a report shows: plain data of one run, gathered by jobs/report.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adacalib.config import RunConfig

METHODS: Mapping[str, str] = {
    "uncalibrated": "un-calibrated",
    "isotonic": "isotonic",
    "isotonic_offset": "isotonic + offset",
    "adacalib": "AdaCalib",
}
"""Methods of metrics.json in the order they are shown, with the names they are shown by."""


@dataclass(frozen=True)
class Curve:
    """Reliability of one method over all test samples or one field value; arrays of one length, a bin each.

    Attributes:
        field_value_id: dense id; None for all test samples.
        method: one of METHODS.
        mean_score: mean score of the bin, probability.
        response_rate: observed rate of label 1.
        rate_low: lower end of the rate's 95 % interval.
        rate_high: its upper end.
        n_samples: number of test samples in the bin.
    """

    field_value_id: int | None
    method: str
    mean_score: Sequence[float]
    response_rate: Sequence[float]
    rate_low: Sequence[float]
    rate_high: Sequence[float]
    n_samples: Sequence[int]


@dataclass(frozen=True)
class MethodSums:
    """One method's sums over the test samples of one field value.

    Attributes:
        n_samples: number of rows.
        n_responses: number of rows with label 1.
        weight: sum of sample weights (n_samples where there are no weights).
        response: Σ w·y, observed responses.
        score_sum: Σ w·p, expected responses.
        log_loss: weighted mean cross-entropy, natural logarithm.
    """

    n_samples: int
    n_responses: int
    weight: float
    response: float
    score_sum: float
    log_loss: float

    @property
    def residual(self) -> float:
        """Expected minus observed responses, Σp − Σy."""
        return self.score_sum - self.response

    @property
    def pcoc(self) -> float | None:
        """Expected / observed responses; None without a positive."""
        return self.score_sum / self.response if self.response > 0 else None


@dataclass(frozen=True)
class FieldValue:
    """One value of the calibrated field that has test samples.

    Attributes:
        field_value_id: dense id; 0 for values not seen in train ∪ dev.
        label: the name it is shown by, see `name_field_value`.
        n_fit_samples: rows in train ∪ dev.
        methods: method → its sums.
    """

    field_value_id: int
    label: str
    n_fit_samples: int
    methods: Mapping[str, MethodSums]


@dataclass(frozen=True)
class LearnedFunction:
    """The function of one field value at the bounds of its bins, over the posteriors of train ∪ dev.

    Attributes:
        label: the name the field value is shown by.
        n_samples: rows in train ∪ dev.
        n_responses: of them with label 1.
        uncalibrated: un-calibrated probability at the K + 1 bounds.
        calibrated: calibrated probability there, before features.
        bin_samples: rows per bin, K of them.
        bin_rate: observed response rate per bin, the posterior; None in an empty bin.
    """

    label: str
    n_samples: int
    n_responses: int
    uncalibrated: Sequence[float]
    calibrated: Sequence[float]
    bin_samples: Sequence[int]
    bin_rate: Sequence[float | None]


@dataclass(frozen=True)
class ChosenBins:
    """The number of bins that adaptive binning chose for one field value.

    Attributes:
        n_responses: rows of the field value in train ∪ dev with label 1.
        n_bins: the candidate chosen.
    """

    n_responses: int
    n_bins: int


@dataclass(frozen=True)
class ReportData:
    """Everything on the page.

    Attributes:
        config: the configuration in force.
        metrics: the content of metrics.json.
        curves: reliability, over all samples first.
        level_drift: training set of a global calibration → log_loss, pcoc; None where data have no dates.
        labels: dense id → name of every value of the calibrated field, id 0 included.
        field_values: those with test samples, the most frequent first.
        functions: a few field values of different frequency, the most frequent first.
        chosen_bins: one per field value; empty without adaptive binning.
        input_counts: what prepare_samples counted (manifest of the samples).
        training: what training the calibrator told (training.json).
        predictor_curve: loss curve of the predictor, an entry per epoch; None with own scores.
        status: the content of status.json; None where no stage was run by the adacalib command.
        comparison: the content of compare.json; None where methods were not compared.
    """

    config: RunConfig
    metrics: Mapping[str, Any]
    curves: Sequence[Curve]
    level_drift: Mapping[str, Mapping[str, float]] | None
    labels: Mapping[int, str]
    field_values: Sequence[FieldValue]
    functions: Sequence[LearnedFunction]
    chosen_bins: Sequence[ChosenBins]
    input_counts: Mapping[str, Any]
    training: Mapping[str, Any]
    predictor_curve: Sequence[Mapping[str, Any]] | None
    status: Mapping[str, Any] | None
    comparison: Mapping[str, Any] | None = None

    @property
    def responses(self) -> str:
        """What sums of labels are called: weighted where samples have weights."""
        return "responses" if self.config.input.weight is None else "weighted responses"


def name_field_value(field_value: str | None, value_kind: str) -> str:
    """Name of a field value for people: (null), (empty) and (unseen) for what has no text of its own.

    Args:
        field_value: the raw value; None for a missing and for the unseen one.
        value_kind: value, null or unseen, as in the tables.

    >>> name_field_value("", "value"), name_field_value(None, "null"), name_field_value("UA", "value")
    ('(empty)', '(null)', 'UA')
    """
    if value_kind != "value" or field_value is None:
        return "(unseen)" if value_kind == "unseen" else "(null)"
    return field_value if field_value.strip() else "(empty)" if not field_value else "(blanks)"


def shorten(label: str, length: int = 22) -> str:
    """A label for a picture: line breaks and tabs become blanks, what is longer than length is cut with …."""
    flat = re.sub(r"[\s\x00-\x1f\x7f]+", " ", label).strip()
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def pick_by_frequency(n_samples: Mapping[int, int], count: int) -> list[int]:
    """Picks ids of different frequency: nearest to `count` steps of equal ratio from the largest to the smallest.

    Args:
        n_samples: dense id → rows; those without rows are never picked.
        count: at least 1; fewer ids come back when there are fewer.

    Returns:
        Ids, the most frequent first; the first of equals is the one with the smaller id.
    """
    ordered = sorted((v for v, n in n_samples.items() if n > 0), key=lambda v: (-n_samples[v], v))
    if len(ordered) <= count:
        return ordered
    largest, smallest = n_samples[ordered[0]], n_samples[ordered[-1]]
    picked: list[int] = []
    for step in range(count):
        target = largest * (smallest / largest) ** (step / max(count - 1, 1))
        rest = [v for v in ordered if v not in picked]
        picked.append(min(rest, key=lambda v: abs(n_samples[v] / target - 1) if target else 0.0))
    return sorted(picked, key=ordered.index)
