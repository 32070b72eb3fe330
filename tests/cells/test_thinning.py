from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.logit_cells import merge_cells
from adacalib.cells.thinning import SharesError, split_cells
from tests.cells.small_world import cells_by_hand, some_cells


@settings(max_examples=40, deadline=None)
@given(some_cells(), st.integers(0, 5), st.sampled_from([(0.7, 0.3), (0.25,) * 4, (1.0,)]))
def test_parts_add_up_to_the_whole(cells, seed, shares):
    parts = split_cells(cells, shares, seed)
    whole = merge_cells(
        *(
            np.concatenate([values(part) for part in parts])
            for values in (
                lambda c: c.field_value_id,
                lambda c: c.cell,
                lambda c: c.weight,
                lambda c: c.response,
                lambda c: c.weight * c.logit,
                lambda c: c.n_samples,
                lambda c: c.n_responses,
            )
        ),
        n_values=cells.n_values,
    )
    for name in ("field_value_id", "cell", "n_samples", "n_responses"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(cells, name))
    for name in ("weight", "response", "logit"):
        np.testing.assert_allclose(getattr(whole, name), getattr(cells, name), rtol=1e-12, atol=1e-12)
    for part in parts:
        assert np.all(part.n_samples > 0)
        assert np.all(part.n_responses <= part.n_samples)
        assert np.all((part.response >= 0) & (part.response <= part.weight + 1e-12))


def test_the_law_is_that_of_dealing_rows():
    # 4 rows of which 2 responses, share 1/2: n_samples ~ Binomial(4, .5), and responses given 2 rows are
    # hypergeometric: 0, 1, 2 with probability 1/6, 4/6, 1/6
    cells = cells_by_hand([(1, j, 4, 2) for j in range(40_000)], 2)
    part, _ = split_cells(cells, (0.5, 0.5), seed=1)
    n_samples = np.bincount(part.n_samples, minlength=5)
    n_samples[0] = len(cells) - len(part)
    np.testing.assert_allclose(n_samples / len(cells), np.array([1, 4, 6, 4, 1]) / 16, atol=0.01)
    responses = np.bincount(part.n_responses[part.n_samples == 2], minlength=3)
    np.testing.assert_allclose(responses / responses.sum(), np.array([1, 4, 1]) / 6, atol=0.015)


def test_weights_follow_the_labels():
    # 2 responses of weight 3 and 8 others of weight .5: every part has 3 per response and .5 per other
    one = merge_cells(
        *(np.array([x]) for x in (1, 0, 2 * 3.0 + 8 * 0.5, 6.0, 10 * 0.01, 10, 2)),
        n_values=2,
    )
    for part in split_cells(one, (0.5, 0.5), seed=3):
        np.testing.assert_allclose(part.response, 3.0 * part.n_responses)
        np.testing.assert_allclose(part.weight, 3.0 * part.n_responses + 0.5 * (part.n_samples - part.n_responses))
        np.testing.assert_allclose(part.logit, one.logit)


def test_seeds_and_one_sample():
    cells = cells_by_hand([(1, j, 100, 30) for j in range(20)], 2)
    first, again, other = (split_cells(cells, (0.5, 0.5), seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.n_samples, again.n_samples)
    assert not np.array_equal(first.n_samples, other.n_samples)
    parts = split_cells(cells_by_hand([(1, 0, 1, 1)], 2), (0.5, 0.5), seed=0)
    assert sorted(len(part) for part in parts) == [0, 1]


@pytest.mark.parametrize("shares", [(0.5, 0.6), (1.5, -0.5), ()])
def test_faulty_shares(shares):
    with pytest.raises(SharesError, match="each must be positive and their sum 1"):
        split_cells(cells_by_hand([(1, 0, 1, 1)], 2), shares, seed=0)
