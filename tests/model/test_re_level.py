"""adacalib/model/re_level.py: cells of the scores, streamed, and the shift fitted on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adacalib.cells.bin_bounds import BinBounds, NoCellsError
from adacalib.cells.functions import build_functions
from adacalib.cells.logit_cells import LogitCells, merge_cells
from adacalib.cells.re_level import fit_re_level
from adacalib.config import TrainingConfig
from adacalib.model import re_level
from adacalib.model.auxiliary import AuxiliaryNetwork
from adacalib.model.calibrator import Calibrator, functions_of
from adacalib.model.distributed import Ranks, join_ranks
from adacalib.model.re_level import Levelling, fit_on_scores
from adacalib.model.row_files import RowFiles, open_rows
from adacalib.model.training import TrainingPlan
from tests.cells.small_world import cells_by_hand
from tests.model.calibrator_world import LEVEL, N_FIELD_VALUES, Rows, arrow_rows, draw_rows, write_table

N_VALUES = N_FIELD_VALUES + 1
COLUMNS = (
    "label",
    "weight",
    "field_value_id",
    "uncalibrated_logit",
    "auxiliary_features",
    "auxiliary_category_ids",
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with join_ranks(TrainingConfig(collective_timeout_seconds=60), seed=1) as joined:
        yield joined


@pytest.fixture(scope="module")
def drawn() -> Rows:
    return draw_rows(3000, seed=12)


@pytest.fixture(scope="module")
def row_files(tmp_path_factory: pytest.TempPathFactory, drawn: Rows) -> tuple[RowFiles, RowFiles]:
    """The rows in two partitions, one of two files."""
    table = tmp_path_factory.mktemp("level") / "training_rows"
    arrow = arrow_rows(drawn)
    write_table(
        table,
        {
            "hold_out=0/a.parquet": arrow.slice(0, 1700),
            "hold_out=0/b.parquet": arrow.slice(1700, 900),
            "hold_out=1/a.parquet": arrow.slice(2600),
        },
    )
    return open_rows(table, "hold_out=0"), open_rows(table, "hold_out=1")


def make_plan(folder: Path) -> TrainingPlan:
    training = TrainingConfig(collective_timeout_seconds=60)
    return TrainingPlan("level", 1, 256, 0.01, 1, COLUMNS, folder / "checkpoints", {}, training)


def make_calibrator(biased_value: int | None = None, bias: float = 0.0) -> Calibrator:
    """The identity for every value, and a network that says `bias` for one value and 0 for all others."""
    bounds = BinBounds(np.tile([-20.0, 20.0], (N_VALUES, 1)), np.ones(N_VALUES, np.int64))
    torch.manual_seed(0)
    network = AuxiliaryNetwork(2, [3], 4, [], N_VALUES, takes_logit=False)
    if biased_value is not None:
        assert network.value_embedding is not None
        with torch.no_grad():
            network.value_embedding.weight.zero_()
            network.value_embedding.weight[biased_value, 0] = bias
            network.output_layer.weight[0, -4] = 1.0  # reads the first number of the value's embedding
    return Calibrator(build_functions(bounds, bounds.bin_bounds_VJ), np.zeros(N_VALUES), 0.0, network)


def score(rows: Rows, calibrator: Calibrator) -> np.ndarray:
    columns = {name: torch.from_numpy(values) for name, values in rows.items()}
    with torch.no_grad():
        return calibrator(columns["field_value_id"].long(), columns["uncalibrated_logit"], columns).numpy()


def cells_of_scores(rows: Rows, logit: np.ndarray) -> LogitCells:
    return merge_cells(
        rows["field_value_id"].astype(np.int64),
        np.floor(32 * logit).astype(np.int64),
        rows["weight"],
        rows["weight"] * rows["label"],
        rows["weight"] * logit,
        np.ones(len(logit), np.int64),
        rows["label"].astype(np.int64),
        N_VALUES,
    )


def test_streamed_cells_are_those_of_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: Ranks, drawn: Rows, row_files: tuple[RowFiles, ...]
) -> None:
    monkeypatch.setattr(re_level, "_MERGE_AT", 500)  # so that parts are added up on the way
    seen: list[LogitCells] = []
    monkeypatch.setattr(Levelling, "fit", lambda self, cells: seen.append(cells) or {})
    calibrator = make_calibrator(2, bias=0.7)
    fit_on_scores(calibrator, row_files, Levelling(LEVEL, "values"), make_plan(tmp_path), ranks)
    expected = cells_of_scores(drawn, score(drawn, calibrator) - LEVEL[drawn["field_value_id"]])
    (cells,) = seen
    for name in ("field_value_id", "cell", "n_samples", "n_responses"):
        np.testing.assert_array_equal(getattr(cells, name), getattr(expected, name))
    for name in ("weight", "response"):
        np.testing.assert_allclose(getattr(cells, name), getattr(expected, name), rtol=1e-9, atol=1e-12)
    # a float32 product of matrices is rounded otherwise in batches of another size, on some processors
    np.testing.assert_allclose(cells.logit, expected.logit, rtol=0, atol=1e-6)
    assert cells.n_values == N_VALUES
    assert cells.n_samples.sum() == 3000


def test_the_shift_repairs_a_value_that_the_network_biases(
    tmp_path: Path, ranks: Ranks, drawn: Rows, row_files: tuple[RowFiles, ...]
) -> None:
    # a network that lifts value 1 by 1.5 log-odds, to where nobody is: the shift takes it back
    levelling, plan = Levelling(np.zeros(N_VALUES), "values"), make_plan(tmp_path)
    plain_V = fit_on_scores(make_calibrator(), row_files, levelling, plan, ranks)["level_shift"]
    calibrator = make_calibrator(1, bias=1.5)
    shift_V = fit_on_scores(calibrator, row_files, levelling, plan, ranks)["level_shift"]
    assert shift_V[1] - plain_V[1] == pytest.approx(-1.5, abs=0.1)
    p = 1 / (1 + np.exp(-score(drawn, _with_shift(calibrator, shift_V))))
    for value in range(1, N_VALUES):
        own = drawn["field_value_id"] == value
        weight = drawn["weight"][own]
        assert np.sum(weight * p[own]) / np.sum(weight * drawn["label"][own]) == pytest.approx(1, abs=0.05)


def _with_shift(calibrator: Calibrator, shift_V: np.ndarray) -> Calibrator:
    state = calibrator.state_dict() | {"level_shift_V": torch.from_numpy(shift_V)}
    calibrator.load_state_dict(state)
    return calibrator


def test_levels_of_step_2_are_taken_out_and_come_back(
    tmp_path: Path, ranks: Ranks, row_files: tuple[RowFiles, ...]
) -> None:
    # α + a′ − a: what a value ends up with, a included, hardly depends on the a that was taken out before
    shifts = []
    for level_V in (np.zeros(N_VALUES), LEVEL):
        bounds = BinBounds(np.tile([-20.0, 20.0], (N_VALUES, 1)), np.ones(N_VALUES, np.int64))
        functions = build_functions(bounds, bounds.bin_bounds_VJ + level_V[:, None])
        calibrator = Calibrator(functions, np.zeros(N_VALUES), 0.0, make_calibrator().auxiliary)
        found = fit_on_scores(calibrator, row_files, Levelling(level_V, "values"), make_plan(tmp_path), ranks)
        shifts.append(found["level_shift"] + level_V)
    np.testing.assert_allclose(shifts[1], shifts[0], atol=1e-6)
    assert np.ptp(shifts[0]) > 0.5


def test_without_levels_per_value_all_values_are_shifted_alike(
    tmp_path: Path, ranks: Ranks, drawn: Rows, row_files: tuple[RowFiles, ...]
) -> None:
    calibrator = make_calibrator(1, bias=1.5)
    levelling = Levelling(np.zeros(N_VALUES), "all")
    shift_V = fit_on_scores(calibrator, row_files, levelling, make_plan(tmp_path), ranks)["level_shift"]
    assert len(set(shift_V.tolist())) == 1
    assert shift_V[0] != 0
    p = 1 / (1 + np.exp(-score(drawn, _with_shift(calibrator, shift_V))))
    # by construction the expected responses are the observed ones, over all values
    assert np.sum(drawn["weight"] * p) == pytest.approx(np.sum(drawn["weight"] * drawn["label"]), rel=1e-3)


def test_a_forward_slope_shrinks_towards_where_the_mean_stays(
    tmp_path: Path, ranks: Ranks, drawn: Rows, row_files: tuple[RowFiles, ...]
) -> None:
    before = make_calibrator(1, bias=1.5)
    for shifts in ("values", "nothing"):
        levelling = Levelling(np.zeros(N_VALUES), shifts, slope=0.6)
        found = fit_on_scores(before, row_files, levelling, make_plan(tmp_path), ranks)
        after = Calibrator(
            functions_of(before), found["level_shift"], 0.0, before.auxiliary, slope=0.6, offset=found["offset"][0]
        )
        logit = score(drawn, _with_shift(before, found["level_shift"]))
        shrunk = score(drawn, after)
        np.testing.assert_allclose(shrunk, 0.6 * logit + found["offset"][0], atol=1e-6)
        expected = [np.sum(drawn["weight"] / (1 + np.exp(-each))) for each in (logit, shrunk)]
        assert expected[1] == pytest.approx(expected[0], rel=1e-3)
        _with_shift(before, np.zeros(N_VALUES))


def test_fit_by_hand() -> None:
    # both values at log-odds 1 less a = (.5, -.5), so 1 before a is taken out; 30 of 40 respond: α = log 3 - 1
    level_V = np.array([0, 0.5, -0.5])
    cells = cells_by_hand([(1, 0, 20, 18), (2, 0, 20, 12)], 3)
    cells = replace(cells, logit=np.array([0.5, 1.5]))
    found = Levelling(level_V, "all").fit(cells)
    np.testing.assert_allclose(found["level_shift"], [np.log(3) - 1] * 3)
    assert found["offset"] == [0.0]
    own = Levelling(level_V, "values").fit(cells)
    np.testing.assert_array_equal(own["level_shift"], fit_re_level(cells, level_V))
    # left where they are, at 1, and halved: as many are expected as at 1, so .5·1 + offset = 1
    found = Levelling(level_V, "nothing", slope=0.5).fit(cells)
    np.testing.assert_array_equal(found["level_shift"], np.zeros(3))
    np.testing.assert_allclose(found["offset"], [0.5])


@pytest.mark.parametrize(
    ("shifts", "slope", "needed"), [("values", 1.0, True), ("nothing", 0.9, True), ("nothing", 1.0, False)]
)
def test_rows_are_read_where_something_is_to_be_fitted(shifts: Any, slope: float, needed: bool) -> None:
    assert Levelling(np.zeros(2), shifts, slope).is_needed is needed


def test_a_rank_without_rows_adds_nothing_and_no_rows_at_all_are_refused(ranks: Ranks) -> None:
    empty = re_level._Accumulator(N_VALUES).join_ranks(ranks)
    assert empty is not None and len(empty) == 0 and empty.n_values == N_VALUES
    with pytest.raises(NoCellsError, match="0 logit cells"):
        Levelling(np.zeros(N_VALUES), "values").fit(empty)
