"""Deciles of field-value frequency: by hand, against plain loops, what must not matter, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.grouped_sums import GroupedSums, MetricsError, sum_method
from adacalib.cells.metrics import ReferenceLevels, compute_metrics
from adacalib.cells.sparsity import (
    SparsityError,
    assign_frequency_deciles,
    compute_frequency_deciles,
    describe_sparsity,
)


def make_sums(n_values: int, seed: int = 1, n_rows: int = 300, with_truth: bool = True) -> GroupedSums:
    """Random sums of one sample a row; later ids are rarer, id 0 (unseen) occurs."""
    generator = np.random.default_rng(seed)
    value = np.minimum(generator.integers(0, n_values, n_rows), generator.integers(0, n_values, n_rows))
    label = generator.integers(0, 2, n_rows)
    truth, score = generator.uniform(0.1, 0.9, n_rows), generator.uniform(0.1, 0.9, n_rows)
    return GroupedSums(
        field_value_id=value,
        tercile=generator.integers(0, 3, n_rows),
        group=generator.integers(0, 5, n_rows),
        weight=np.ones(n_rows),
        response=label * 1.0,
        n_samples=np.ones(n_rows, np.int64),
        n_responses=label,
        score_sums={"m": score},
        log_loss_sums={"m": -np.log(np.where(label == 1, score, 1 - score))},
        n_values=n_values,
        n_groups=5,
        truth_sum=truth if with_truth else None,
        truth_error_sums={"m": np.abs(score - truth)} if with_truth else {},
    )


def test_deciles_by_hand() -> None:
    # 5 seen values (id 3 has no fit samples): in increasing order 5, 4 (tie of 2: the larger id first), 6, 2, 1,
    # in groups floor(10·i/5) + 1 = 1, 3, 5, 7, 9
    assert assign_frequency_deciles(np.array([99, 50, 8, 0, 2, 2, 7])).tolist() == [0, 9, 7, 0, 3, 1, 5]
    # 20 values: two each, the last ids first
    assert assign_frequency_deciles(np.array([0, *range(100, 80, -1)])).tolist() == [
        0, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1
    ]  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_deciles_have_equally_many_values_in_order(n_fit: list[int]) -> None:
    decile = assign_frequency_deciles(np.array(n_fit))
    seen = [i for i in range(1, len(n_fit)) if n_fit[i] > 0]
    assert {i for i in range(len(n_fit)) if decile[i]} == set(seen)
    sizes = [np.count_nonzero(decile == d) for d in range(1, 11)]
    assert max(sizes) - min(sizes) <= 1
    for a in seen:
        for b in seen:
            assert n_fit[a] >= n_fit[b] or decile[a] <= decile[b]


def test_groups_by_hand() -> None:
    # value 1 (5 fit samples, decile 6 of two values: floor(10·1/2) + 1): Σy = 1, Σp = .5, Σt = .4, Σ|p − t| = .1;
    # value 2 (2 fit samples, decile 1): no positive, Σp = .2, Σt = .1; unseen: Σy = 1, Σp = .75, Σt = .5
    one = np.ones(3)
    sums = GroupedSums(
        field_value_id=np.array([1, 2, 0]),
        tercile=np.array([0, 1, 2]),
        group=np.zeros(3, np.int64),
        weight=one,
        response=np.array([1.0, 0.0, 1.0]),
        n_samples=one.astype(np.int64),
        n_responses=np.array([1, 0, 1]),
        score_sums={"m": np.array([0.5, 0.2, 0.75])},
        log_loss_sums={"m": one},
        n_values=3,
        n_groups=1,
        truth_sum=np.array([0.4, 0.1, 0.5]),
        truth_error_sums={"m": np.array([0.1, 0.1, 0.25])},
    )
    rare, frequent, unseen = compute_frequency_deciles(np.array([0, 5, 2]), sums, "m")
    assert (rare.decile, frequent.decile, unseen.decile) == (1, 6, None)
    assert (rare.n_values, rare.min_fit_samples, rare.max_fit_samples, rare.n_samples) == (1, 2, 2, 1)
    assert rare.field_rce is None
    assert rare.truth_error == pytest.approx(1.0) and rare.truth_field_rce == pytest.approx(1.0)
    assert frequent.field_rce == pytest.approx(0.5)
    assert frequent.truth_error == pytest.approx(0.25)
    assert (unseen.n_values, unseen.max_fit_samples, unseen.n_responses) == (1, 0, 1)
    assert unseen.field_rce == pytest.approx(0.25) and unseen.truth_error == pytest.approx(0.5)


def test_same_as_loops_over_rows() -> None:
    sums = make_sums(35)
    n_fit = np.array([0, *(1000 // i for i in range(1, 35))])
    decile = assign_frequency_deciles(n_fit)
    groups = compute_frequency_deciles(n_fit, sums, "m")
    assert [group.decile for group in groups] == [*range(1, 11), None]
    for group in groups:
        ids = [0] if group.decile is None else [i for i in range(35) if decile[i] == group.decile]
        error = truth = weighted = n = 0.0
        for i in ids:
            mine = np.flatnonzero(sums.field_value_id == i)
            error += sums.truth_error_sums["m"][mine].sum()
            truth += sums.truth_sum[mine].sum()
            if (y := sums.response[mine].sum()) > 0:
                weighted += len(mine) * abs(sums.score_sums["m"][mine].sum() / y - 1)
                n += len(mine)
        assert group.truth_error == pytest.approx(error / truth)
        assert group.field_rce == pytest.approx(weighted / n)
        assert group.n_values == len(ids)


def test_groups_add_up_to_the_whole() -> None:
    sums = make_sums(35, seed=2)
    n_fit = np.arange(35, 0, -1)
    groups = compute_frequency_deciles(n_fit, sums, "m")
    assert sum(group.n_samples for group in groups) == 300
    total = sum_method(sums, "m")
    whole = compute_metrics(sums, "m", None, None, ReferenceLevels())["truth_error"]
    decile = assign_frequency_deciles(n_fit)
    decile_of_group = {group.decile or 0: group.truth_error for group in groups}
    shares = np.bincount(decile, weights=total.truth_sum.sum(1), minlength=11) / total.truth_sum.sum()
    assert whole == pytest.approx(sum(shares[d] * error for d, error in decile_of_group.items()))


def test_without_truth_and_without_unseen_samples() -> None:
    sums = make_sums(4, with_truth=False)
    groups = compute_frequency_deciles(np.array([0, 9, 5, 1]), sums, "m")
    assert {(group.truth_error, group.truth_field_rce) for group in groups} == {(None, None)}
    seen = GroupedSums(
        **{name: getattr(sums, name) for name in sums.__dataclass_fields__}
        | {"field_value_id": np.maximum(sums.field_value_id, 1)}
    )
    last = describe_sparsity(np.array([0, 9, 5, 1]), seen, "m")[-1]
    assert last["decile"] is None and last["n_samples"] == 0 and last["field_rce"] is None
    json.dumps(describe_sparsity(np.array([0.0, 9.0, 5.0, 1.0]), sums, "m"), allow_nan=False)


def test_what_does_not_belong_together_is_refused() -> None:
    sums = make_sums(4)
    with pytest.raises(SparsityError, match="fit samples of 3 field value ids, sums of 4"):
        compute_frequency_deciles(np.array([0, 2, 1]), sums, "m")
    with pytest.raises(MetricsError, match="no sums of a method 'other'"):
        compute_frequency_deciles(np.array([0, 2, 1, 1]), sums, "other")
