"""The list of methods: whose names they are, and that each can be fitted and asked as the comparison does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from adacalib import baselines
from adacalib.baselines.catalogue import BASELINES, FIELD_AWARE, GLOBAL, TABLE_1
from adacalib.cells.bin_bounds import NoCellsError
from tests.cells.small_world import cells_of_rows, draw_rows, some_cells

for_all = pytest.mark.parametrize("name", BASELINES)


def log_loss(label, p):
    return float(-np.mean(label * np.log(p) + (1 - label) * np.log1p(-p)))


def test_the_papers_rows_come_first_and_in_its_order():
    assert [entry.label for entry in TABLE_1.values()] == ["HistoBin", "IsoReg", "GammaCalib", "SIR"]
    assert list(BASELINES) == [*TABLE_1, *GLOBAL, *FIELD_AWARE]
    assert len(BASELINES) == len(TABLE_1) + len(GLOBAL) + len(FIELD_AWARE)  # no name in two groups


def test_labels_are_different_and_names_are_safe_in_a_column():
    assert len({entry.label for entry in BASELINES.values()}) == len(BASELINES)
    assert all(name.isidentifier() and name.islower() for name in BASELINES)


def test_no_method_is_forgotten():
    # every module of the folder that fits something is in the catalogue, under its own name
    folder = Path(baselines.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if f"\ndef fit_{path.stem}(" in path.read_text()}
    assert modules - {"logistic", "isotonic_field_part"} == set(BASELINES)
    assert all(entry.fit.__name__ == f"fit_{name}" for name, entry in BASELINES.items())


@for_all
def test_every_method_improves_on_a_score_that_is_off_by_one(name):
    # the world's responses, and a score that is 1 too high in log-odds
    (z, s, y, _), (z_new, s_new, y_new, _) = draw_rows(20000, 5, seed=4)
    fitted = BASELINES[name].fit(cells_of_rows(z, s + 1, y, 6))
    before = log_loss(y_new, 1 / (1 + np.exp(-(s_new + 1))))
    predicted = fitted.predict(s_new + 1, z_new)
    # temperature has no level: all it can do is move everything towards a half or away from it
    assert log_loss(y_new, predicted) < before - (0.0 if name == "temperature" else 0.02)
    if name != "temperature":
        assert predicted.sum() == pytest.approx(y_new.sum(), rel=0.06)


@for_all
def test_only_field_aware_methods_ask_for_the_field_value(name):
    (z, s, y, _), _ = draw_rows(20000, 5, seed=4)
    fitted = BASELINES[name].fit(cells_of_rows(z, s, y, 6))
    line = np.linspace(-5, 1, 50)
    per_value = [fitted.predict(line, np.full(50, value)) for value in range(6)]
    assert all(np.array_equal(p, per_value[0]) for p in per_value) == (name not in FIELD_AWARE)


@for_all
@settings(max_examples=10, deadline=None)
@given(cells=some_cells())
def test_any_cells_give_probabilities_for_known_and_unknown_values(name, cells):
    logit, ids = np.tile(np.linspace(-16.2, 16.2, 40), 3), np.repeat([0, 3, 99], 40)
    predicted = BASELINES[name].fit(cells).predict(logit, ids)
    assert predicted.dtype == np.float64 and predicted.shape == logit.shape
    assert np.all((predicted >= 1e-7) & (predicted <= 1 - 1e-7))


@for_all
def test_no_cells(name):
    cells = cells_of_rows([1], [0.0], [1], 2).select(np.array([False]))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        BASELINES[name].fit(cells)
