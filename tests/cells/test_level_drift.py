from __future__ import annotations

import numpy as np
import pytest

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.level_drift import compare_levels
from tests.cells.small_world import cells_by_hand, cells_of_rows


def test_by_hand_without_a_fit_and_with_a_shifted_one():
    # one cell at log-odds 1/64; test: 30 of 40 respond. As it is: PCOC = 40·σ(1/64)/30 = .6719; fitted on cells of
    # the same rate: (30 + .5·.75)/40.5 = .75, PCOC 1 and the entropy of 3/4
    test = cells_by_hand([(1, 0, 40, 30)], 2)
    found = compare_levels(test, {"none": None, "same": test})
    assert found["none"]["pcoc"] == pytest.approx(40 / (1 + np.exp(-1 / 64)) / 30)
    assert found["same"]["pcoc"] == pytest.approx(1.0)
    assert found["same"]["log_loss"] == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    p = 1 / (1 + np.exp(-1 / 64))
    assert found["none"]["log_loss"] == pytest.approx(-0.75 * np.log(p) - 0.25 * np.log(1 - p))


def test_the_recent_fit_wins_where_the_level_drifted():
    rng = np.random.default_rng(2)

    def draw(shift, n):
        s = rng.normal(-1, 1, n)
        y = (rng.random(n) < 1 / (1 + np.exp(-(s + shift)))).astype(np.int64)
        return cells_of_rows(np.ones(n, np.int64), s, y, 2)

    test, recent, old = draw(0.8, 20_000), draw(0.8, 20_000), draw(-0.5, 20_000)
    found = compare_levels(test, {"none": None, "dev": recent, "old": old})
    assert list(found) == ["none", "dev", "old"]
    assert found["dev"]["log_loss"] < found["none"]["log_loss"] - 0.02 < found["old"]["log_loss"]
    assert found["dev"]["pcoc"] == pytest.approx(1, abs=0.03)
    assert found["none"]["pcoc"] < 0.8
    assert found["old"]["pcoc"] < 0.6


def test_without_responses_there_is_no_pcoc():
    found = compare_levels(cells_by_hand([(1, 0, 5, 0)], 2), {"none": None})
    assert set(found["none"]) == {"log_loss"}


def test_nothing_to_fit_on():
    cells = cells_by_hand([(1, 0, 5, 1)], 2)
    with pytest.raises(NoCellsError, match="0 logit cells"):
        compare_levels(cells, {"dev": cells.select(np.array([False]))})
