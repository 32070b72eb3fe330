"""Metrics from raw rows with plain loops, straight from their definitions; shares no code with the product.

A row is a dict: value (dense id), cell (of the un-calibrated logit), group, weight, label, score and perhaps truth.
"""

from __future__ import annotations

import math
from typing import Any

Row = dict[str, Any]


def tercile_of_each_row(rows: list[Row]) -> list[int]:
    """floor(3 · mid-rank / n), the mid-rank of a row's cell among its value's; a tie goes to the upper third."""
    result = []
    for row in rows:
        same = [other for other in rows if other["value"] == row["value"]]
        below = sum(other["weight"] for other in same if other["cell"] < row["cell"])
        tied = sum(other["weight"] for other in same if other["cell"] == row["cell"])
        total = sum(other["weight"] for other in same)
        result.append(min(2, math.floor(3 * (below + tied / 2) / total + 1e-9)))
    return result


def _split(rows: list[Row], by: list[Any]) -> list[list[Row]]:
    parts: dict[Any, list[Row]] = {}
    for row, key in zip(rows, by, strict=True):
        parts.setdefault(key, []).append(row)
    return list(parts.values())


def _relative_error(parts: list[list[Row]], over_all: bool = False) -> float | None:
    numerator = denominator = 0.0
    any_positive = False
    for part in parts:
        n = sum(row["weight"] for row in part)
        y = sum(row["weight"] * row["label"] for row in part)
        p = sum(row["weight"] * row["score"] for row in part)
        if y > 0:
            any_positive = True
            numerator += n * abs(p / y - 1)
        if y > 0 or over_all:
            denominator += n
    return numerator / denominator if any_positive else None


def metrics(rows: list[Row], terciles: list[int]) -> dict[str, float | None]:
    """The metrics that sums suffice for; those against the truth for rows that have one.

    The terciles are given: leaving rows out does not move them.
    """
    by_value = _split(rows, [row["value"] for row in rows])
    by_tercile = _split(rows, [(row["value"], t) for row, t in zip(rows, terciles, strict=True)])
    n = sum(row["weight"] for row in rows)
    y = sum(row["weight"] * row["label"] for row in rows)
    p = sum(row["weight"] * row["score"] for row in rows)
    ece = loss = 0.0
    for part in by_value:
        ece += abs(sum(row["weight"] * (row["label"] - row["score"]) for row in part))
    for row in rows:
        loss -= row["weight"] * math.log(row["score"] if row["label"] else 1 - row["score"])
    against_truth = {}
    if "truth" in rows[0]:
        error = sum(row["weight"] * abs(row["score"] - row["truth"]) for row in rows)
        against_truth["truth_error"] = error / sum(row["weight"] * row["truth"] for row in rows)
        as_if_labels = [[{**row, "label": row["truth"]} for row in part] for part in by_value]
        against_truth["truth_field_rce"] = _relative_error(as_if_labels)
    return {
        "field_rce": _relative_error(by_value),
        "field_rce_all_samples": _relative_error(by_value, over_all=True),
        "field_rce_terciles": _relative_error(by_tercile),
        "field_ece": ece / n,
        "pcoc": p / y if y > 0 else None,
        "log_loss": loss / n,
        **against_truth,
    }


def jackknife_errors(rows: list[Row], second_scores: list[float] | None = None) -> dict[str, float]:
    """Delete-a-group standard errors of the metrics; with second scores, of the metric minus the second's."""
    terciles = tercile_of_each_row(rows)
    groups = sorted({row["group"] for row in rows})
    estimates: dict[str, list[float]] = {}
    for group in groups:
        kept = [i for i, row in enumerate(rows) if row["group"] != group]
        part = metrics([rows[i] for i in kept], [terciles[i] for i in kept])
        if second_scores is not None:
            others = [{**rows[i], "score": second_scores[i]} for i in kept]
            second = metrics(others, [terciles[i] for i in kept])
            part = {name: part[name] - second[name] for name in part}
        for name, value in part.items():
            estimates.setdefault(name, []).append(value)
    n_groups = len(groups)
    errors = {}
    for name, values in estimates.items():
        mean = sum(values) / n_groups
        errors[name] = math.sqrt((n_groups - 1) / n_groups * sum((value - mean) ** 2 for value in values))
    return errors


def _credit(low: float, high: float) -> float:
    return 1.0 if low < high else 0.5 if low == high else 0.0


def auc(positives: list[float], negatives: list[float]) -> float:
    """Share of (positive, negative) pairs in the right order, ties half."""
    return sum(_credit(n, p) for p in positives for n in negatives) / (len(positives) * len(negatives))


def delong_variance(positives: list[float], negatives: list[float]) -> float:
    """DeLong, DeLong and Clarke-Pearson (1988), equation by equation; at least two of each class."""
    theta = auc(positives, negatives)
    v10 = [sum(_credit(n, p) for n in negatives) / len(negatives) for p in positives]
    v01 = [sum(_credit(n, p) for p in positives) / len(positives) for n in negatives]
    s10 = sum((v - theta) ** 2 for v in v10) / (len(positives) - 1)
    s01 = sum((v - theta) ** 2 for v in v01) / (len(negatives) - 1)
    return s10 / len(positives) + s01 / len(negatives)


def binomial_floor(n: int, p: float) -> tuple[float, float]:
    """P(Y ≥ 1) and E[|n·p/Y − 1|; Y ≥ 1] (not divided by the chance) by the binomial formula."""
    chance = error = 0.0
    for k in range(1, n + 1):
        mass = math.comb(n, k) * p**k * (1 - p) ** (n - k)
        chance += mass
        error += mass * abs(n * p / k - 1)
    return chance, error
