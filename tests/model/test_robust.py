"""adacalib/model/robust.py: what the auxiliary network is trained in, and what is served after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.field_part import FieldFit, RobustSwitches, fit_field_part
from adacalib.cells.functions import interpolate
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.config import RunConfig, TrainingConfig, parse_config
from adacalib.model import robust
from adacalib.model.auxiliary import AuxiliaryNetwork, AuxiliaryShape
from adacalib.model.distributed import Ranks, join_ranks
from adacalib.model.robust import (
    NO_HELD_OUT_ROWS,
    RobustCalibrator,
    calibrate_without_rows,
    compute_held_out_loss,
    compute_step_loss,
    train_robust,
)
from adacalib.model.row_files import RowFiles, StreamError, join_rows, open_rows
from adacalib.model.training import train
from tests.model.calibrator_world import (
    CATEGORY_EFFECT,
    N_FIELD_VALUES,
    Rows,
    arrow_rows,
    cell_columns,
    draw_rows,
    make_config,
    write_table,
)

N_VALUES = N_FIELD_VALUES + 1
SHAPE = AuxiliaryShape(2, (len(CATEGORY_EFFECT),))


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with join_ranks(TrainingConfig(collective_timeout_seconds=60), seed=1) as joined:
        yield joined


@pytest.fixture(scope="module")
def drawn() -> Rows:
    return draw_rows(3000, seed=12)


@pytest.fixture(scope="module")
def fit(drawn: Rows) -> FieldFit:
    columns = cell_columns(drawn)
    bounds = compute_bin_bounds(cells_from_columns(columns, N_VALUES), 10)
    return fit_field_part(columns, N_VALUES, bounds, RobustSwitches(), 1)


def to_batch(rows: Rows) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in rows.items()}


def write_rows(folder: Path, rows: Rows) -> tuple[RowFiles, RowFiles]:
    files = {}
    for part in (0, 1):
        chosen = np.flatnonzero(rows["hold_out"] == part)
        if len(chosen):
            files[f"hold_out={part}/a.parquet"] = arrow_rows({name: values[chosen] for name, values in rows.items()})
    write_table(folder / "training_rows", files)
    table = folder / "training_rows"
    return open_rows(table, "hold_out=0"), open_rows(table, "hold_out=1")


def fast_config(folder: Path, changes: dict[str, Any] | None = None) -> RunConfig:
    return make_config(folder, {"calibrator": changes or {}})


def log_loss(rows: Rows, logit: np.ndarray) -> float:
    losses = np.logaddexp(0, logit) - rows["label"] * logit
    return float(np.average(losses, weights=rows["weight"]))


def test_the_network_adds_to_the_field_parts_logit_and_sees_it(drawn: Rows, fit: FieldFit) -> None:
    torch.manual_seed(4)
    network = AuxiliaryNetwork(2, [3], 4, [6], None, takes_logit=True)
    torch.nn.init.normal_(network.output_layer.weight)
    module = RobustCalibrator(fit.functions, fit.mean_logit, network)
    batch = to_batch(drawn)
    k = interpolate(fit.functions, drawn["field_value_id"].astype(int), drawn["uncalibrated_logit"])
    with torch.no_grad():
        found = module(batch).numpy()
        term = network(batch, batch["field_value_id"].long(), torch.from_numpy((k - fit.mean_logit) / 1.5)).numpy()
    np.testing.assert_allclose(found, k + term, atol=1e-5)
    assert np.abs(term).max() > 0.1
    # and the loss is that of these log-odds; to it comes the penalty, of as many rows as there are
    loss, weight = compute_held_out_loss(module, batch)
    assert loss.item() / weight.item() == pytest.approx(log_loss(drawn, found), rel=1e-9)
    with_penalty, _ = compute_step_loss(module, batch)
    assert with_penalty.item() == pytest.approx(loss.item() + network.compute_penalty(weight).item(), rel=1e-12)
    # the functions are no part of its checkpoints
    assert set(module.state_dict()) == {f"auxiliary.{name}" for name in network.state_dict()}


def test_the_network_earns_its_keep_on_fresh_rows_and_serves_the_full_functions(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit
) -> None:
    calibrator, told = train_robust(fast_config(tmp_path), fit, SHAPE, *write_rows(tmp_path, drawn), ranks)
    curve = [epoch["held_out_loss"] for epoch in told["loss_curves"]["auxiliary"]]
    assert len(curve) == 4
    assert curve[told["chosen_epoch"]] == min(curve) == told["held_out_loss"]
    assert min(curve) < curve[0] - 0.05
    assert calibrator.auxiliary is not None and calibrator.auxiliary.value_embedding is not None
    fresh = draw_rows(3000, seed=77)
    batch = to_batch(fresh)
    with torch.no_grad():
        logit = calibrator(batch["field_value_id"].long(), batch["uncalibrated_logit"], batch).numpy()
    plain = interpolate(fit.functions, fresh["field_value_id"].astype(int), fresh["uncalibrated_logit"])
    assert log_loss(fresh, logit) < log_loss(fresh, plain) - 0.05
    np.testing.assert_array_equal(calibrator.table.knots_RJ.numpy(), fit.functions.knots_RJ)
    assert calibrator.level_shift_V.any()


def test_a_run_that_was_killed_before_the_re_level_resumes_to_the_same_result(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path, drawn)
    config = fast_config(tmp_path)
    expected, told = train_robust(config, fit, SHAPE, *rows, ranks)
    with monkeypatch.context() as patch:
        patch.setattr(robust, "fit_on_scores", None)  # the training ends, and no more
        with pytest.raises(TypeError):
            train_robust(config, fit, SHAPE, *rows, ranks)
    training = config.training.model_copy(update={"resume": True})
    found, told_again = train_robust(config.model_copy(update={"training": training}), fit, SHAPE, *rows, ranks)
    assert told_again["held_out_loss"] == told["held_out_loss"]
    assert all(torch.equal(value, found.state_dict()[name]) for name, value in expected.state_dict().items())


def test_where_the_latest_days_are_held_out_the_network_is_trained_on_them_too(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit
) -> None:
    rows, held_out = write_rows(tmp_path, drawn)
    config = fast_config(tmp_path, {"auxiliary": {"field_value_embedding": False, "epochs": 2}})
    plain, told = train_robust(config, fit, SHAPE, rows, held_out, ranks)
    dated = config.model_dump(mode="json")
    by_date = parse_config(dated | {"split": {"by": "date"}, "input": dated["input"] | {"date": "day"}})
    found, told_again = train_robust(by_date, fit, SHAPE, rows, held_out, ranks)
    # the same choice by the same losses, but another network: that of as many epochs on all rows
    assert told["chosen_epoch"] == told_again["chosen_epoch"] > 0
    assert told["held_out_loss"] == told_again["held_out_loss"]
    assert (told["trained_on_all_rows"], told_again["trained_on_all_rows"]) == (False, True)
    module, plan = robust._prepare(config, fit, SHAPE, rows, ranks)
    plan = replace(plan, epochs=told["chosen_epoch"], keeps="last_epoch", patience=None, checkpoints=tmp_path / "own")
    train(module, compute_step_loss, join_rows(rows, held_out), plan, ranks)
    assert found.auxiliary is not None and plain.auxiliary is not None
    for name, value in module.auxiliary.state_dict().items():
        assert torch.equal(value, found.auxiliary.state_dict()[name]), name
        assert not torch.equal(value, plain.auxiliary.state_dict()[name]), name

    resumed = by_date.model_copy(update={"training": by_date.training.model_copy(update={"resume": True})})
    again, _ = train_robust(resumed, fit, SHAPE, rows, held_out, ranks)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in found.state_dict().items())


def test_unseen_values_get_their_parents_level_with_network_and_re_level_too(
    tmp_path: Path, ranks: Ranks, drawn: Rows
) -> None:
    columns = cell_columns(drawn)
    cells = cells_from_columns(columns, N_VALUES)
    bounds = compute_bin_bounds(cells, 10)
    parent_V = np.append(0, 1 + np.arange(N_FIELD_VALUES) % 2)
    leaning = fit_field_part(columns, N_VALUES, bounds, RobustSwitches(), 1, parent_V)
    assert leaning.chosen == "robust" and leaning.parent_level_P.shape == (3,) and leaning.parent_level_P[0] == 0
    network = {"auxiliary": {"field_value_embedding": False, "epochs": 1}}
    trained, _ = train_robust(fast_config(tmp_path, network), leaning, SHAPE, *write_rows(tmp_path, drawn), ranks)
    without = calibrate_without_rows(fast_config(tmp_path), leaning, cells)
    for calibrator in (trained, without):
        assert calibrator.parent_level_P is not None and calibrator.columns[0] == "parent_id"
        np.testing.assert_array_equal(calibrator.parent_level_P.numpy(), leaning.parent_level_P)
        assert calibrator.level_shift_V.any()
    # no parents where the global curve was chosen, or levels are off: nothing is asked of a service
    off = RobustSwitches(value_level=False)
    for fit in (
        fit_field_part(columns, N_VALUES, bounds, off, 1, parent_V),
        replace(leaning, chosen="global_curve", parent_level_P=np.zeros(1)),
    ):
        calibrator = calibrate_without_rows(fast_config(tmp_path), fit, cells)
        assert calibrator.parent_level_P is None and calibrator.columns == ()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_embedding_is_there_as_wanted(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit, wanted: bool
) -> None:
    config = fast_config(tmp_path, {"auxiliary": {"field_value_embedding": wanted, "epochs": 1}, "re_level": False})
    calibrator, _ = train_robust(config, fit, SHAPE, *write_rows(tmp_path, drawn), ranks)
    assert calibrator.auxiliary is not None
    assert (calibrator.auxiliary.value_embedding is not None) == wanted
    assert not calibrator.level_shift_V.any()  # re_level: false


def test_the_global_curve_shifts_all_values_alike(tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit) -> None:
    plain = replace(fit, chosen="global_curve", level_V=np.zeros(N_VALUES))
    config = fast_config(tmp_path, {"auxiliary": {"field_value_embedding": False, "epochs": 1}})
    calibrator, _ = train_robust(config, plain, SHAPE, *write_rows(tmp_path, drawn), ranks)
    assert len(set(calibrator.level_shift_V.tolist())) == 1


def test_what_ran_before_leaves_no_trace(tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit) -> None:
    # so that a resumed run ends where the uninterrupted one does
    config = fast_config(tmp_path, {"auxiliary": {"field_value_embedding": True, "epochs": 1}})
    rows = write_rows(tmp_path, drawn)
    states = []
    for used in (0, 17):
        torch.manual_seed(5)
        torch.rand(used)
        calibrator, _ = train_robust(config, fit, SHAPE, *rows, ranks)
        states.append(calibrator.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_zero_epochs_serve_the_functions_alone(tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit) -> None:
    config = fast_config(tmp_path, {"auxiliary": {"epochs": 0}, "re_level": False})
    calibrator, told = train_robust(config, fit, SHAPE, *write_rows(tmp_path, drawn), ranks)
    assert told["chosen_epoch"] == 0
    batch = to_batch(drawn)
    with torch.no_grad():
        logit = calibrator(batch["field_value_id"].long(), batch["uncalibrated_logit"], batch).numpy()
    expected = interpolate(fit.functions, drawn["field_value_id"].astype(int), drawn["uncalibrated_logit"])
    np.testing.assert_allclose(logit, expected, atol=1e-9)


def test_without_held_out_rows_the_network_stays_without_effect(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit, caplog: pytest.LogCaptureFixture
) -> None:
    rows = drawn | {"hold_out": np.zeros_like(drawn["hold_out"])}
    calibrator, told = train_robust(fast_config(tmp_path), fit, SHAPE, *write_rows(tmp_path, rows), ranks)
    assert told["auxiliary_note"] == NO_HELD_OUT_ROWS
    assert told["chosen_epoch"] == 0
    assert "no held-out rows" in caplog.text and "hold_out=1" in caplog.text
    batch = to_batch(rows)
    with torch.no_grad():
        logit = calibrator(batch["field_value_id"].long(), batch["uncalibrated_logit"], batch).numpy()
    ids = rows["field_value_id"].astype(int)
    expected = interpolate(fit.functions, ids, rows["uncalibrated_logit"]) + calibrator.level_shift_V.numpy()[ids]
    np.testing.assert_allclose(logit, expected, atol=1e-9)
    assert calibrator.level_shift_V.any()  # the re-level needs no choice, and goes on
    assert not (tmp_path / "runs" / "w" / "checkpoints").exists()


def test_without_rows_the_shift_is_that_of_the_cells(tmp_path: Path, drawn: Rows, fit: FieldFit) -> None:
    cells = cells_from_columns(cell_columns(drawn), N_VALUES)
    config = fast_config(tmp_path, {"auxiliary": {"enabled": False}})
    calibrator = calibrate_without_rows(config, fit, cells)
    assert calibrator.auxiliary is None
    logit = interpolate(fit.functions, cells.field_value_id, cells.logit)
    p = 1 / (1 + np.exp(-(logit + calibrator.level_shift_V.numpy()[cells.field_value_id])))
    before = 1 / (1 + np.exp(-logit))

    def error(probability: np.ndarray) -> float:
        sums = cells.sum_by_value(cells.weight * probability), cells.sum_by_value(cells.response)
        return float(np.abs(sums[0] - sums[1]).sum())

    assert error(p) < error(before)
    off = fast_config(tmp_path, {"auxiliary": {"enabled": False}, "re_level": False})
    assert not calibrate_without_rows(off, fit, cells).level_shift_V.any()
    # as with rows: without a field effect all values are moved alike, so that the whole has the observed level
    no_level = fast_config(tmp_path, {"auxiliary": {"enabled": False}, "value_level": False})
    for settings, chosen in ((no_level, fit), (config, replace(fit, chosen="global_curve"))):
        shift_V = calibrate_without_rows(settings, chosen, cells).level_shift_V.numpy()
        np.testing.assert_array_equal(shift_V, shift_V[0])
        p = 1 / (1 + np.exp(-(logit + shift_V[0])))
        assert (cells.weight * p).sum() == pytest.approx(cells.response.sum(), rel=1e-9)


def test_a_forward_slope_shrinks_rows_and_cells_alike_and_keeps_the_mean(
    tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit
) -> None:
    cells, rows, batch = cells_from_columns(cell_columns(drawn), N_VALUES), write_rows(tmp_path, drawn), to_batch(drawn)
    ids, logits = batch["field_value_id"].long(), batch["uncalibrated_logit"]
    for re_level in (True, False):
        config = fast_config(
            tmp_path, {"auxiliary": {"field_value_embedding": False, "epochs": 1}, "re_level": re_level}
        )
        drifting = replace(fit, forward_slope=0.7)
        whole = [train_robust(config, each, SHAPE, *rows, ranks)[0] for each in (fit, drifting)]
        from_cells = [calibrate_without_rows(config, each, cells) for each in (fit, drifting)]
        for plain, shrunk in (whole, from_cells):
            assert (float(plain.slope), float(plain.offset), float(shrunk.slope)) == (1.0, 0.0, 0.7)
            assert torch.equal(plain.level_shift_V, shrunk.level_shift_V)
            with torch.no_grad():
                before, after = (each(ids, logits, batch).numpy() for each in (plain, shrunk))
            np.testing.assert_allclose(after, 0.7 * before + float(shrunk.offset), atol=1e-12)
            expected = [np.sum(drawn["weight"] / (1 + np.exp(-each))) for each in (before, after)]
            assert expected[1] == pytest.approx(expected[0], rel=2e-3)


def test_held_out_rows_alone_are_not_enough(tmp_path: Path, ranks: Ranks, drawn: Rows, fit: FieldFit) -> None:
    rows = drawn | {"hold_out": np.ones_like(drawn["hold_out"])}
    with pytest.raises(StreamError, match=r"hold_out=0: no rows to train the auxiliary network on"):
        train_robust(fast_config(tmp_path), fit, SHAPE, *write_rows(tmp_path, rows), ranks)
