"""Laws of beta, BBQ and scaling-binning, and of the methods that know the field value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib.baselines.bbq import fit_bbq
from adacalib.baselines.beta import fit_beta
from adacalib.baselines.histogram_per_value import fit_histogram_per_value
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.baselines.isotonic_ratio import fit_isotonic_ratio
from adacalib.baselines.platt_per_value import fit_platt_per_value
from adacalib.baselines.scaling_binning import fit_scaling_binning
from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.logit_cells import LOGIT_LIMIT
from tests.cells.small_world import cells_by_hand, cells_of_rows, draw_rows, some_cells

GLOBAL = [fit_beta, fit_bbq, fit_scaling_binning]
PER_VALUE = [fit_histogram_per_value, fit_platt_per_value, fit_isotonic_ratio, fit_isotonic_offset]

for_all = pytest.mark.parametrize("fit", GLOBAL + PER_VALUE, ids=lambda fit: fit.__name__)
LINE = np.tile(np.linspace(-20, 20, 201), 6)
IDS = np.repeat([-1, 0, 1, 2, 4, 99], 201)


@for_all
@settings(max_examples=25, deadline=None)
@given(cells=some_cells())
def test_predictions_are_probabilities(fit, cells):
    predicted = fit(cells).predict(LINE, IDS)
    assert predicted.shape == LINE.shape
    assert np.all((predicted >= 1e-7) & (predicted <= 1 - 1e-7))


@for_all
def test_predictions_stand_in_the_order_of_the_rows(fit):
    (z, s, y, _), _ = draw_rows(3000, 4, seed=3)
    fitted = fit(cells_of_rows(z, s, y, 5))
    order = np.random.default_rng(1).permutation(len(s))
    in_order = fitted.predict(s, z)
    assert len(np.unique(in_order)) > 5
    np.testing.assert_allclose(fitted.predict(s[order], z[order]), in_order[order], rtol=1e-12)
    np.testing.assert_allclose([fitted.predict(s[[i]], z[[i]])[0] for i in range(20)], in_order[:20], rtol=1e-12)


@for_all
def test_the_order_of_the_fitted_rows_does_not_matter(fit):
    (z, s, y, _), _ = draw_rows(3000, 4, seed=3)
    order = np.random.default_rng(1).permutation(len(s))
    one, other = fit(cells_of_rows(z, s, y, 5)), fit(cells_of_rows(z[order], s[order], y[order], 5))
    np.testing.assert_allclose(one.predict(LINE, IDS), other.predict(LINE, IDS), rtol=1e-7)


@pytest.mark.parametrize("fit", GLOBAL, ids=lambda fit: fit.__name__)
def test_the_field_value_plays_no_part(fit):
    (z, s, y, _), _ = draw_rows(3000, 4, seed=3)
    split, pooled = fit(cells_of_rows(z, s, y, 5)), fit(cells_of_rows(np.ones_like(z), s, y, 2))
    np.testing.assert_allclose(split.predict(LINE, IDS), pooled.predict(LINE, IDS + 7), rtol=1e-9)


@pytest.mark.parametrize("fit", PER_VALUE, ids=lambda fit: fit.__name__)
def test_the_field_value_plays_its_part(fit):
    (z, s, y, _), _ = draw_rows(3000, 4, seed=3)
    cells = cells_of_rows(z, s, y, 5)
    by_value = fit(cells).predict(np.full(6, -2.0), np.array([0, 1, 2, 3, 5, 99]))
    assert len(np.unique(by_value[:4])) == 4
    np.testing.assert_array_equal(by_value[4:], by_value[0])


@for_all
def test_prediction_remembers_nothing(fit):
    (z, s, y, _), _ = draw_rows(3000, 4, seed=3)
    fitted = fit(cells_of_rows(z, s, y, 5))
    before = fitted.predict(LINE, IDS)
    fitted.predict(LINE * 10, np.full(len(LINE), 5))
    np.testing.assert_array_equal(fitted.predict(LINE, IDS), before)
    with pytest.raises(FrozenInstanceError):
        fitted.anything = 1


@for_all
def test_weight_two_is_two_rows(fit):
    (z, s, y, _), _ = draw_rows(2000, 4, seed=4)
    twice = np.random.default_rng(2).random(len(s)) < 0.4
    weighted = fit(cells_of_rows(z, s, y, 5, weight=1.0 + twice))
    repeated = fit(cells_of_rows(*(np.concatenate([column, column[twice]]) for column in (z, s, y)), 5))
    plain = fit(cells_of_rows(z, s, y, 5))
    np.testing.assert_allclose(weighted.predict(LINE, IDS), repeated.predict(LINE, IDS), rtol=1e-7)
    assert np.abs(weighted.predict(LINE, IDS) - plain.predict(LINE, IDS)).max() > 1e-4


@for_all
def test_scores_of_exactly_0_and_1(fit):
    # such scores arrive as ±LOGIT_LIMIT; a tenth of the rows each
    logit = np.concatenate([np.full(100, -LOGIT_LIMIT), np.linspace(-3, 3, 800), np.full(100, LOGIT_LIMIT)])
    label = (np.random.default_rng(5).random(1000) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    fitted = fit(cells_of_rows(np.ones(1000, np.int64), logit, label, 2))
    for value in (0, 1):
        low, middle, high = fitted.predict(np.array([-LOGIT_LIMIT, 0.0, LOGIT_LIMIT]), np.full(3, value))
        assert 1e-7 <= low < 0.03
        assert 0.2 < middle < 0.8
        assert 0.97 < high <= 1 - 1e-7


@for_all
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_not_left_at_a_half(fit, label):
    # 200 samples of one class on its own side of 0: at most about one sample's worth of doubt is left
    logit = np.linspace(-4, -1, 200) * (1 - 2 * label)
    fitted = fit(cells_of_rows(np.ones(200, np.int64), logit, np.full(200, label), 2))
    for value in (0, 1):
        error = np.abs(label - fitted.predict(logit, np.full(200, value)))
        assert error.mean() < 0.02
        assert np.all(error < 0.1)


@for_all
@pytest.mark.parametrize("label", [0, 1])
def test_a_lone_sample(fit, label):
    fitted = fit(cells_of_rows([1], [-0.3], [label], 2))
    assert np.all(np.isfinite(fitted.predict(LINE, IDS)))


@for_all
def test_no_cells(fit):
    with pytest.raises(NoCellsError, match="0 logit cells"):
        fit(cells_by_hand([(1, 0, 1, 0)], 2).select(np.array([False])))
