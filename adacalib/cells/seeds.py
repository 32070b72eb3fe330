"""Several seeds of a comparison: which method is best, and whether that is more than chance.

A seed varies the split, where rows are dealt by a hash, and the initialisation; so a method's figures over seeds have a
spread of their own, the deterministic methods the split's alone. Beside the test over seeds therefore stands one over
groups of rows. Where all seeds have one split (by date or by a column), they vary the initialisation alone and say
nothing of the chance in the test rows: there the test over groups of rows is the one that counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import ttest_rel

from adacalib.cells.grouped_sums import SUM_METRICS, GroupedSums, iterate_leave_outs
from adacalib.cells.intervals import compute_jackknife_error

HIGHER_IS_BETTER = {"field_auc", "auc"}

Values = Sequence[float | None]


@dataclass(frozen=True)
class BestMethod:
    """The best method of one metric, held against the second best.

    Attributes:
        best: method of the best mean over seeds.
        second: the best of the methods outside the best one's family; None where there is none.
        difference: mean over seeds of best − second, in the metric's unit.
        p_value: two-sided, paired t-test over seeds, or with one test set that over groups of rows; None with fewer
            than two seeds.
        p_value_jackknife: two-sided, paired jackknife over groups of rows inside a seed; None where not known.
    """

    best: str
    second: str | None
    difference: float | None
    p_value: float | None
    p_value_jackknife: float | None


def find_best(
    metric: str,
    values: Mapping[str, Values],
    leave_outs: Mapping[str, Sequence[Values]] | None = None,
    families: Sequence[frozenset[str]] = (),
    *,
    same_test_set: bool = False,
) -> BestMethod | None:
    """Finds the best and the second best method of a metric, and tests their difference.

    Args:
        metric: its name; decides whether higher is better.
        values: method → the metric per seed; a method with an undefined value takes no part.
        leave_outs: method → per seed the metric without each group of rows; the same groups for all methods.
        families: sets of methods that do not count as each other's rivals.
        same_test_set: whether all seeds have one test set.

    Returns:
        None without any method whose values are all defined.
    """
    means = {method: _mean(own) for method, own in values.items()}
    ranked = [(mean, method) for method, mean in means.items() if mean is not None]
    if not ranked:
        return None
    ranked.sort(key=lambda pair: -pair[0] if metric in HIGHER_IS_BETTER else pair[0])
    best = ranked[0][1]
    kin = next((family for family in families if best in family), frozenset({best}))
    second = next((method for _, method in ranked if method not in kin), None)
    if second is None:
        return BestMethod(best, None, None, None, None)
    groups = leave_outs or {}
    pair = compare_pair(values[best], values[second], groups.get(best), groups.get(second), same_test_set=same_test_set)
    return BestMethod(best, second, **pair)


def compare_pair(
    a: Values,
    b: Values,
    leave_outs_a: Sequence[Values] | None = None,
    leave_outs_b: Sequence[Values] | None = None,
    *,
    same_test_set: bool = False,
) -> dict[str, float | None]:
    """Mean over seeds of a − b, and both p values, as `BestMethod` has them; None for what is not defined."""
    mean_a, mean_b = _mean(a), _mean(b)
    if mean_a is None or mean_b is None:
        return {"difference": None, "p_value": None, "p_value_jackknife": None}
    jackknife = None
    if leave_outs_a is not None and leave_outs_b is not None:
        jackknife = _jackknife_p(mean_a - mean_b, leave_outs_a, leave_outs_b)
    over_seeds = compute_paired_p(a, b)
    if same_test_set and over_seeds is not None:
        over_seeds = jackknife
    return {"difference": mean_a - mean_b, "p_value": over_seeds, "p_value_jackknife": jackknife}


def compute_paired_p(a: Values, b: Values) -> float | None:
    """Two-sided p value of a paired t-test over seeds.

    Equal methods have 1; a difference that is the same in every seed has 0. None with fewer than two seeds or an
    undefined value.
    """
    if len(a) < 2 or any(x is None for x in (*a, *b)):
        return None
    differences = np.array(a, np.float64) - np.array(b, np.float64)
    scale = float(np.abs(differences).max())
    if scale == 0:
        return 1.0
    if float(np.ptp(differences)) <= 1e-12 * scale:
        return 0.0
    return float(ttest_rel(np.array(a, np.float64), np.array(b, np.float64)).pvalue)


def summarise(values: Values) -> tuple[float | None, float | None]:
    """(mean, standard deviation over seeds, n − 1 in the denominator); the latter None with one seed."""
    mean = _mean(values)
    if mean is None or len(values) < 2:
        return mean, None
    return mean, float(np.std(np.array(values, np.float64), ddof=1))


def _mean(values: Values) -> float | None:
    return None if not values or any(v is None for v in values) else float(np.mean(np.array(values, np.float64)))


def _jackknife_p(difference: float, a: Sequence[Values], b: Sequence[Values]) -> float | None:
    """The test sets of seeds overlap, so the mean over seeds is given no less spread than one seed's."""
    variances = []
    for of_a, of_b in zip(a, b, strict=True):
        pairs = zip(of_a, of_b, strict=True)
        error = compute_jackknife_error([None if x is None or y is None else x - y for x, y in pairs])
        if error is None:
            return None
        variances.append(error**2)
    spread = math.sqrt(float(np.mean(variances)))
    if spread == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * ndtr(-abs(difference) / spread))


def list_leave_outs(sums: GroupedSums, method: str, metrics: Sequence[str]) -> dict[str, list[float | None]]:
    """The method's metrics without each jackknife group in turn, as `find_best` takes them.

    Args:
        metrics: names in SUM_METRICS.

    Raises:
        MetricsError: the sums hold no such method.
    """
    parts = list(iterate_leave_outs(sums, method))
    return {metric: [SUM_METRICS[metric](part) for part in parts] for metric in metrics}
