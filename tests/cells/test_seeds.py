"""Several seeds of a comparison: by hand, against formulas written out, and what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from adacalib.cells.grouped_sums import GroupedSums, MetricsError
from adacalib.cells.seeds import HIGHER_IS_BETTER, compare_pair, compute_paired_p, find_best, list_leave_outs, summarise

FAMILY = frozenset({"ours", "ours_small"})


def t_test_oracle(differences: list[float]) -> float:
    """Student's p value by the incomplete beta function."""
    n = len(differences)
    mean = sum(differences) / n
    variance = sum((d - mean) ** 2 for d in differences) / (n - 1)
    t = mean / math.sqrt(variance / n)
    return float(betainc((n - 1) / 2, 0.5, (n - 1) / (n - 1 + t * t)))


def jackknife_oracle(difference: float, a: list[list[float]], b: list[list[float]]) -> float:
    """Two-sided normal p value; the spread is the root mean square of the seeds' jackknife errors."""
    variances = []
    for of_a, of_b in zip(a, b, strict=True):
        d = [x - y for x, y in zip(of_a, of_b, strict=True)]
        mean = sum(d) / len(d)
        variances.append((len(d) - 1) / len(d) * sum((x - mean) ** 2 for x in d))
    return math.erfc(abs(difference) / math.sqrt(sum(variances) / len(variances)) / math.sqrt(2))


def test_paired_p_by_hand() -> None:
    # differences 1, 2, 3: t = 2/(1/√3) = √12 with 2 degrees of freedom, where F(t) = 1/2 + t/(2·√(2 + t²)):
    # p = 1 − √12/√14 = .074180
    assert compute_paired_p([3.0, 5.0, 7.0], [2.0, 3.0, 4.0]) == pytest.approx(0.074180, abs=1e-6)
    assert compute_paired_p([2.0, 3.0, 4.0], [3.0, 5.0, 7.0]) == pytest.approx(0.074180, abs=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ([0.1, 0.2], [0.1, 0.2], 1.0),
        # .3 − .2 and .2 − .1 differ in their last bit only: no spread
        ([0.3, 0.2], [0.2, 0.1], 0.0),
        ([0.1], [0.2], None),
        ([], [], None),
        ([0.1, None], [0.2, 0.3], None),
        ([0.1, 0.2], [None, 0.3], None),
    ],
)
def test_paired_p_at_its_edges(a: list[float | None], b: list[float | None], p: float | None) -> None:
    assert compute_paired_p(a, b) == p


def test_best_by_hand() -> None:
    # means .2, .25, .22 and .4; the second best outside the family of `ours` is `iso`, which is .02 worse
    values = {"ours": [0.1, 0.3], "ours_small": [0.15, 0.28], "iso": [0.21, 0.23], "raw": [0.4, 0.4]}
    alone = find_best("log_loss", values)
    assert alone is not None
    assert (alone.best, alone.second) == ("ours", "ours_small")
    assert alone.difference == pytest.approx(-0.015)
    best = find_best("log_loss", values, None, (FAMILY,))
    assert best is not None
    assert (best.best, best.second, best.p_value_jackknife) == ("ours", "iso", None)
    assert best.difference == pytest.approx(-0.02)
    # differences -.11 and .07: mean -.02, t = -.02/(.1273/√2) = -.2222 with 1 degree of freedom: 1 − 2·atan(.2222)/π
    assert best.p_value == pytest.approx(1 - 2 * math.atan(2 / 9) / math.pi)
    # a rival is held against the best of all others, our own among them
    ours_behind = find_best("log_loss", values | {"iso": [0.1, 0.1]}, None, (FAMILY,))
    assert ours_behind is not None and (ours_behind.best, ours_behind.second) == ("iso", "ours")


@pytest.mark.parametrize("metric", ["auc", "field_auc"])
def test_higher_is_better_for_areas(metric: str) -> None:
    best = find_best(metric, {"low": [0.6, 0.61], "high": [0.7, 0.72], "middle": [0.65, 0.66]})
    assert best is not None and (best.best, best.second) == ("high", "middle")
    assert best.difference == pytest.approx(0.055)
    assert metric in HIGHER_IS_BETTER


def test_methods_without_a_value_take_no_part() -> None:
    best = find_best("field_rce", {"a": [0.1, None], "b": [0.3, 0.3], "c": []})
    assert best is not None
    assert (best.best, best.second, best.difference, best.p_value) == ("b", None, None, None)
    assert find_best("field_rce", {"a": [None]}) is None
    assert find_best("field_rce", {}) is None


def test_jackknife_by_hand() -> None:
    # seed 1: differences without each of two groups .1 and .3: error √(1/2 · (.1² + .1²)) = .1; seed 2: 0 and .4: .2.
    # Spread √((.01 + .04)/2) = .158114; mean difference -.2: z = 1.264911, p = .205903
    a, b = [[0.1, 0.3], [0.0, 0.4]], [[0.0, 0.0], [0.0, 0.0]]
    pair = compare_pair([0.1, 0.2], [0.3, 0.4], a, b)
    assert pair["difference"] == pytest.approx(-0.2)
    assert pair["p_value_jackknife"] == pytest.approx(0.205903, abs=1e-6)
    assert pair["p_value"] == 0.0  # the same difference in both seeds
    best = find_best("log_loss", {"x": [0.1, 0.2], "y": [0.3, 0.4]}, {"x": a, "y": b})
    assert best is not None and best.p_value_jackknife == pair["p_value_jackknife"]


def test_seeds_with_one_test_set_have_the_p_value_of_its_rows() -> None:
    # .53300 against .53301 in five seeds: no chance between seeds, but all of it between groups of rows
    noise = [[0.1, -0.2, 0.15, -0.05]] * 5
    flat = [[0.0] * 4] * 5
    ours, theirs = [0.53300] * 5, [0.53301] * 5
    assert compare_pair(ours, theirs, noise, flat)["p_value"] == 0.0
    pair = compare_pair(ours, theirs, noise, flat, same_test_set=True)
    assert pair["p_value"] == pair["p_value_jackknife"] > 0.9
    best = find_best("log_loss", {"x": ours, "y": theirs}, {"x": noise, "y": flat}, same_test_set=True)
    assert best is not None and best.p_value == pair["p_value"]
    assert compare_pair(ours, theirs, same_test_set=True)["p_value"] is None  # no groups: nothing is known
    assert compare_pair(ours[:1], theirs[:1], noise[:1], flat[:1], same_test_set=True)["p_value"] is None


def test_jackknife_at_its_edges() -> None:
    flat = [[0.2, 0.2, 0.2]]
    assert compare_pair([0.1], [0.1], flat, flat)["p_value_jackknife"] == 1.0
    assert compare_pair([0.1], [0.2], flat, flat)["p_value_jackknife"] == 0.0
    assert compare_pair([0.1], [0.2], [[0.1, None]], [[0.2, 0.3]])["p_value_jackknife"] is None
    assert compare_pair([0.1], [0.2], [[0.1]], [[0.2]])["p_value_jackknife"] is None  # one group has no spread
    assert compare_pair([0.1], [0.2], flat, None)["p_value_jackknife"] is None
    assert compare_pair([None], [0.2], flat, flat) == {"difference": None, "p_value": None, "p_value_jackknife": None}
    best = find_best("log_loss", {"x": [0.1], "y": [0.2]}, {"x": flat})
    assert best is not None and best.p_value_jackknife is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 8))
def test_both_p_values_are_the_oracles(seed: int, n_seeds: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.2, 0.01, n_seeds).tolist(), rng.normal(0.21, 0.01, n_seeds).tolist()
    left_a, left_b = (rng.normal(0.2, 0.01, (n_seeds, n_groups)).tolist() for _ in range(2))
    pair = compare_pair(a, b, left_a, left_b)
    differences = [x - y for x, y in zip(a, b, strict=True)]
    assert pair["difference"] == pytest.approx(sum(differences) / n_seeds)
    assert pair["p_value"] == pytest.approx(t_test_oracle(differences), rel=1e-6)
    expected = jackknife_oracle(sum(differences) / n_seeds, left_a, left_b)
    assert pair["p_value_jackknife"] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["log_loss", "auc"]), st.floats(0.1, 3))
def test_the_best_is_best_whatever_the_order_or_the_unit(seed: int, metric: str, unit: float) -> None:
    rng = np.random.default_rng(seed)
    names = ["ours", "ours_small", "iso", "sir", "raw"]
    values = {name: rng.uniform(0, 1, 3).tolist() for name in names}
    best = find_best(metric, values, None, (FAMILY,))
    assert best is not None and best.second is not None and best.difference is not None
    means = {name: np.mean(own) for name, own in values.items()}
    sign = -1 if metric == "auc" else 1
    rivals = [name for name in names if not {name, best.best} <= FAMILY and name != best.best]
    assert all(sign * means[best.best] <= sign * mean for mean in means.values())
    assert all(sign * means[best.second] <= sign * means[name] for name in rivals)
    assert best.second in rivals and sign * best.difference <= 0
    turned = {name: [unit * v for v in values[name]] for name in reversed(names)}
    again = find_best(metric, turned, None, (FAMILY,))
    assert again is not None and (again.best, again.second) == (best.best, best.second)
    assert again.difference == pytest.approx(unit * best.difference)
    assert again.p_value == pytest.approx(best.p_value, rel=1e-6)


def test_summary_by_hand() -> None:
    # mean of 1, 2, 4 is 7/3; squares 16/9 + 1/9 + 25/9 = 42/9, over n − 1 = 2: variance 7/3
    assert summarise([1.0, 2.0, 4.0]) == (pytest.approx(7 / 3), pytest.approx(math.sqrt(7 / 3)))
    assert summarise([0.5]) == (0.5, None)
    assert summarise([0.5, None]) == (None, None)
    assert summarise([]) == (None, None)


def four_rows() -> GroupedSums:
    """Value 1 in groups 0 and 2 of three; method `half` says 1/2 everywhere, `tenth` says 1/10."""
    weight, response = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 3.0, 0.0])
    losses = {
        name: np.where(response > 0, -weight * np.log(p), -weight * np.log1p(-p))
        for name, p in (("half", 0.5), ("tenth", 0.1))
    }
    return GroupedSums(
        field_value_id=np.ones(4, np.int64),
        tercile=np.zeros(4, np.int64),
        group=np.array([0, 0, 2, 2]),
        weight=weight,
        response=response,
        n_samples=np.ones(4, np.int64),
        n_responses=(response > 0).astype(np.int64),
        score_sums={"half": 0.5 * weight, "tenth": 0.1 * weight},
        log_loss_sums=losses,
        n_values=2,
        n_groups=3,
    )


def test_leave_outs_by_hand() -> None:
    # without group 0: weight 7, response 3: |.5·7/3 − 1| = 1/6; without group 2: weight 3, response 1: |1.5 − 1| = 1/2;
    # group 1 does not occur, and there is no truth to miss
    found = list_leave_outs(four_rows(), "half", ["field_rce", "log_loss", "truth_error"])
    assert found["field_rce"] == pytest.approx([1 / 6, 1 / 2])
    assert found["log_loss"] == pytest.approx([math.log(2)] * 2)
    assert found["truth_error"] == [None, None]


def test_faults_are_named() -> None:
    with pytest.raises(MetricsError, match="there are no sums of a method 'third'; methods summed: half, tenth"):
        list_leave_outs(four_rows(), "third", ["field_rce"])
    with pytest.raises(ValueError, match="shorter"):  # leave-outs of other groups are no pairs
        compare_pair([0.1], [0.2], [[0.1, 0.2, 0.3]], [[0.1, 0.2]])
