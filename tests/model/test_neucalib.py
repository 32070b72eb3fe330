"""adacalib/model/neucalib.py: one function for all field values, its penalty, its training and its serving form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adacalib.cells.bin_bounds import BinBounds, NoCellsError, compute_bin_bounds
from adacalib.cells.global_curve import GlobalCurve, fit_global_curve
from adacalib.cells.logit_cells import LogitCells, pool_values
from adacalib.config import RunConfig, TrainingConfig, parse_config
from adacalib.model.auxiliary import AuxiliaryNetwork, AuxiliaryShape
from adacalib.model.calibrator import Calibrator
from adacalib.model.distributed import Ranks, join_ranks
from adacalib.model.neucalib import N_BINS, NeuCalib, compute_held_out_loss, make_step_loss, train_neucalib
from adacalib.model.row_files import RowFiles, StreamError, join_rows, open_rows
from tests import oracle
from tests.model.calibrator_world import (
    CATEGORY_EFFECT,
    N_FIELD_VALUES,
    Rows,
    arrow_rows,
    cells_of,
    draw_rows,
    make_config,
    write_table,
)

N_VALUES = N_FIELD_VALUES + 1
SHAPE = AuxiliaryShape(2, (len(CATEGORY_EFFECT),))
IDENTITY = GlobalCurve(np.zeros(1), np.zeros(1), 1.0, 1.0)
NO_NETWORK = {"auxiliary": {"enabled": False}}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with join_ranks(TrainingConfig(collective_timeout_seconds=60), seed=1) as joined:
        yield joined


def make_module(
    bounds: list[float], knots: list[float] | None = None, network: AuxiliaryNetwork | None = None
) -> NeuCalib:
    """On the identity, or with the knots given."""
    module = NeuCalib(BinBounds(np.array([bounds]), np.array([len(bounds) - 1])), IDENTITY, network)
    if knots is not None:
        with torch.no_grad():
            module.knots_J.copy_(torch.tensor(knots, dtype=torch.float64))
    return module


def make_network(embedding: bool = True, seed: int = 4) -> AuxiliaryNetwork:
    """A network that does something."""
    torch.manual_seed(seed)
    network = AuxiliaryNetwork(2, [3], 4, [6], N_VALUES if embedding else None, takes_logit=False)
    nn.init.normal_(network.output_layer.weight)
    return network


def batch_of(logit: list[float], label: list[int], weight: list[float]) -> dict[str, Tensor]:
    return {
        "uncalibrated_logit": torch.tensor(logit),
        "label": torch.tensor(label),
        "weight": torch.tensor(weight, dtype=torch.float64),
    }


def to_batch(rows: Rows, keep: slice = slice(None)) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values[keep]) for name, values in rows.items()}


def log_loss(rows: Rows, logit: np.ndarray[Any, Any]) -> float:
    losses = np.logaddexp(0, logit) - rows["label"] * logit
    return float(np.average(losses, weights=rows["weight"]))


def test_by_hand() -> None:
    # knots 0, 1, 0 at -1, 0, 2: slope 1, then -1/2, both of them beyond the ends as well
    module = make_module([-1.0, 0.0, 2.0], [0.0, 1.0, 0.0])
    found = module({"uncalibrated_logit": torch.tensor([-3.0, -1, -0.5, 0, 1, 2, 4])})
    assert found.tolist() == [-2, 0, 0.5, 1, 0.5, 0, -1]
    assert found.dtype == torch.float64
    assert module.slopes().tolist() == [1, -0.5]


def test_loss_and_penalty_by_hand() -> None:
    # knots 0, 1, 0 fall by 1. Logit -1 → 0, a response of weight 2: 2·log 2; logit 1 → .5, none, weight 1:
    # log(1 + e^.5) = .974077. Together 2.360371; the penalty 3·1 counts once per unit of weight: + 3·3
    module = make_module([-1.0, 0.0, 2.0], [0.0, 1.0, 0.0])
    batch = batch_of([-1.0, 1.0], [1, 0], [2.0, 1.0])
    loss, weight = make_step_loss(3.0)(module, batch)
    assert (loss.item(), weight.item()) == (pytest.approx(2.360371 + 9, abs=1e-6), 3)
    held_out, weight = compute_held_out_loss(module, batch)
    assert (held_out.item(), weight.item()) == (pytest.approx(2.360371, abs=1e-6), 3)


def test_gradients_by_hand() -> None:
    # logit -.25 lies 3/4 through the first bin, at σ(.75) = .679179 and a response: dloss = -.320821 there, a quarter
    # of it for knot 1, three for knot 2; the fall of knot 2 to knot 3 adds 1 and -1 times the weight 2
    module = make_module([-1.0, 0.0, 2.0], [0.0, 1.0, 0.5])
    loss, _ = make_step_loss(1.0)(module, batch_of([-0.25], [1], [2.0]))
    loss.backward()
    assert module.knots_J.grad is not None
    expected = [-0.25 * 0.641642, -0.75 * 0.641642 + 2, -2]
    np.testing.assert_allclose(module.knots_J.grad.numpy(), expected, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(0, 4))
def test_penalty_is_the_sum_of_all_falls(knots: list[float], penalty_weight: float) -> None:
    module = make_module(np.linspace(-2, 2, len(knots)).tolist(), knots)
    batch = batch_of([-1.0, 0.3, 5.0], [1, 0, 1], [0.5, 1.0, 2.0])
    loss, weight = make_step_loss(penalty_weight)(module, batch)
    plain, _ = compute_held_out_loss(module, batch)
    falls = sum(max(knots[i] - knots[i + 1], 0.0) for i in range(len(knots) - 1))
    assert (loss - plain).item() / weight.item() == pytest.approx(penalty_weight * falls, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 199), st.integers(0, 100))
def test_the_loss_of_a_batch_is_the_sum_of_its_parts(cut: int, seed: int) -> None:
    # what makes two ranks the same as one: sums of losses, weights and gradients over ranks are those of all rows
    rows = draw_rows(200, seed)
    module, step_loss = make_module([-3.0, -1.0, 0.0, 2.0], [-2.0, 0.5, 0.2, 1.0], make_network()), make_step_loss(0.7)
    parts = [to_batch(rows), to_batch(rows, slice(0, cut)), to_batch(rows, slice(cut, None))]
    (whole, weight), *ranks = [step_loss(module, part) for part in parts]
    assert whole.item() == pytest.approx(sum(loss.item() for loss, _ in ranks), rel=1e-6)
    assert weight.item() == pytest.approx(sum(w.item() for _, w in ranks))
    gradients = [torch.autograd.grad(loss, module.knots_J)[0].numpy() for loss in (whole, *(loss for loss, _ in ranks))]
    np.testing.assert_allclose(gradients[0], gradients[1] + gradients[2], rtol=1e-5, atol=1e-6)


def network_oracle(network: AuxiliaryNetwork, rows: Rows) -> np.ndarray[Any, Any]:
    """Numbers, category embedding and field value embedding, cross layer, one hidden layer."""
    state = {name: tensor.numpy().astype(float) for name, tensor in network.state_dict().items()}
    terms = []
    for b in range(len(rows["label"])):
        category = state["encoder.embeddings.0.weight"][rows["auxiliary_category_ids"][b, 0]]
        value = state["value_embedding.weight"][rows["field_value_id"][b]]
        x = np.concatenate([rows["auxiliary_features"][b], category, value])
        x = x + x * (state["cross_layer.weight"] @ x + state["cross_layer.bias"])
        hidden = np.maximum(state["hidden_layers.0.weight"] @ x + state["hidden_layers.0.bias"], 0)
        terms.append((state["output_layer.weight"] @ hidden + state["output_layer.bias"])[0])
    return np.array(terms)


def test_log_odds_and_loss_are_the_oracles() -> None:
    rows, network = draw_rows(300, seed=5), make_network()
    bounds, knots = [-2.5, -1.5, -0.5, 1.0], [-2.0, -2.2, 0.1, 0.7]
    module = make_module(bounds, knots, network)
    slopes = [(knots[k + 1] - knots[k]) / (bounds[k + 1] - bounds[k]) for k in (0, 2)]
    line = [oracle.piecewise_linear(bounds, knots, *slopes, float(s)) for s in rows["uncalibrated_logit"]]
    expected = np.array(line) + network_oracle(network, rows)
    np.testing.assert_allclose(module(to_batch(rows)).detach().numpy(), expected, atol=2e-6)
    loss, weight = make_step_loss(0.5)(module, to_batch(rows))
    assert loss.item() / weight.item() == pytest.approx(log_loss(rows, expected) + 0.5 * 0.2, rel=1e-6)


def test_every_parameter_gets_a_gradient() -> None:
    module = make_module([-2.0, -1.0, 0.0, 1.0], None, make_network())
    loss, weight = make_step_loss(1.0)(module, to_batch(draw_rows(200, seed=6)))
    (loss / weight).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name
    assert module.auxiliary is not None and module.auxiliary.value_embedding is not None
    embedding = module.auxiliary.value_embedding.weight.grad
    assert embedding is not None and embedding[1:].any(dim=1).all() and not embedding[0].any()  # id 0: unseen


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 500), st.sampled_from([None, False, True]))
def test_folded_it_serves_what_was_trained(seed: int, embedding: bool | None) -> None:
    rng = np.random.default_rng(seed)
    bounds = np.cumsum(rng.uniform(0.1, 1.5, rng.integers(2, 8))) - 3
    network = None if embedding is None else make_network(embedding, seed)
    module = make_module(bounds.tolist(), rng.normal(0, 2, len(bounds)).tolist(), network)
    rows = draw_rows(60, seed)
    rows["field_value_id"][:9] = 0
    rows["uncalibrated_logit"][: len(bounds)] = bounds
    rows["uncalibrated_logit"][-4:] = [-12, -9, 9, 12]
    batch = to_batch(rows)
    calibrator = module.fold(N_VALUES)
    with torch.no_grad():
        served = calibrator(batch["field_value_id"].long(), batch["uncalibrated_logit"], batch)
        np.testing.assert_allclose(served.numpy(), module(batch).numpy(), rtol=1e-9, atol=1e-9)
    assert calibrator.table.n_values == N_VALUES and len(calibrator.table.knots_RJ) == 1
    assert not calibrator.level_shift_V.any()


def test_the_knots_start_on_the_global_curve() -> None:
    cells = cells_of(draw_rows(3000, seed=7))
    curve = fit_global_curve(cells)
    bounds = compute_bin_bounds(pool_values(cells), N_BINS)
    module = NeuCalib(bounds, curve, None)
    assert module.slopes().min() >= 0  # so the penalty starts at 0
    at_bounds = bounds.bin_bounds_VJ[0, : bounds.n_bins_V[0] + 1]
    found = module({"uncalibrated_logit": torch.from_numpy(at_bounds)}).detach().numpy()
    inside = (at_bounds >= curve.logit_knots[0]) & (at_bounds <= curve.logit_knots[-1])
    assert inside.sum() > 50
    line = np.interp(at_bounds[inside], curve.logit_knots, curve.calibrated_knots)
    np.testing.assert_allclose(found[inside], line, atol=1e-9)
    assert list(module.state_dict()) == ["knots_J"]  # bounds come from the cells, not from a checkpoint


def write_rows(folder: Path, rows: Rows) -> tuple[RowFiles, RowFiles]:
    files = {}
    for part in (0, 1):
        chosen = np.flatnonzero(rows["hold_out"] == part)
        if len(chosen):
            files[f"hold_out={part}/a.parquet"] = arrow_rows({name: values[chosen] for name, values in rows.items()})
    write_table(folder / "training_rows", files)
    table = folder / "training_rows"
    return open_rows(table, "hold_out=0"), open_rows(table, "hold_out=1")


def config_of(folder: Path, changes: dict[str, Any] | None = None) -> RunConfig:
    auxiliary = {"batch_size": 256, "learning_rate": 0.01} | (changes or {}).get("auxiliary", {})
    own = {"mode": "neucalib", "epochs": 3, "learning_rate": 0.01} | (changes or {}) | {"auxiliary": auxiliary}
    return make_config(folder, {"calibrator": own})


def run(
    folder: Path, ranks: Ranks, rows: Rows, changes: dict[str, Any] | None = None
) -> tuple[Calibrator, dict[str, Any]]:
    config = config_of(folder, changes)
    return train_neucalib(config, cells_of(rows), SHAPE, *write_rows(folder, rows), ranks)


def score(calibrator: Calibrator, rows: Rows) -> np.ndarray[Any, Any]:
    batch = to_batch(rows)
    with torch.no_grad():
        logit: np.ndarray[Any, Any] = calibrator(
            batch["field_value_id"].long(), batch["uncalibrated_logit"], batch
        ).numpy()
    return logit


FRESH = draw_rows(4000, seed=77)


def test_where_the_latest_days_are_held_out_it_is_trained_on_them_too(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(2000, seed=12)
    files, cells = write_rows(tmp_path, rows), cells_of(rows)
    config = config_of(tmp_path)
    dated = config.model_dump(mode="json")
    by_date = parse_config(dated | {"split": {"by": "date"}, "input": dated["input"] | {"date": "day"}})
    plain, told = train_neucalib(config, cells, SHAPE, *files, ranks)
    found, told_again = train_neucalib(by_date, cells, SHAPE, *files, ranks)
    assert told["chosen_epoch"] == told_again["chosen_epoch"] > 0
    assert (told["trained_on_all_rows"], told_again["trained_on_all_rows"]) == (False, True)
    # all rows as training rows, none held out, for as many epochs, keep what the last step reached; the mean of the
    # last epoch's steps is near it, and nearer than what the training without them kept
    every = join_rows(*files)
    nothing = replace(every, paths=(), row_groups=())
    near = config_of(tmp_path / "near", {"auxiliary": {"epochs": told["chosen_epoch"]}})
    last, _ = train_neucalib(near, cells, SHAPE, every, nothing, ranks)
    scores = [score(each, FRESH) for each in (found, plain, last)]
    assert np.mean((scores[0] - scores[2]) ** 2) < np.mean((scores[1] - scores[2]) ** 2)
    assert np.abs(scores[0] - scores[1]).max() > 0.01


def test_training_earns_its_keep_with_and_without_the_network(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(3000, seed=12)
    with_network, told = run(tmp_path / "with", ranks, rows)
    curve = [epoch["held_out_loss"] for epoch in told["loss_curves"]["neucalib"]]
    assert len(curve) == 4  # epoch 0 and three
    assert told["chosen_epoch"] == int(np.argmin(curve)) > 0
    assert min(curve) < curve[0] - 0.05
    assert with_network.auxiliary is not None and with_network.auxiliary.value_embedding is not None
    plain, _ = run(tmp_path / "without", ranks, rows, NO_NETWORK)
    assert plain.auxiliary is None
    raw = FRESH["uncalibrated_logit"].astype(float)
    losses = [log_loss(FRESH, logit) for logit in (raw, score(plain, FRESH), score(with_network, FRESH))]
    assert losses[2] < losses[1] - 0.05 < losses[0] - 0.06
    # without the network all field values, the unseen one too, have the same function
    line = {"uncalibrated_logit": np.linspace(-6, 6, N_VALUES).astype(np.float32)}
    ids = np.arange(N_VALUES)
    np.testing.assert_array_equal(
        score(plain, line | {"field_value_id": ids}), score(plain, line | {"field_value_id": ids * 0})
    )


def test_without_network_it_is_no_worse_than_the_curve_it_starts_from(tmp_path: Path, ranks: Ranks) -> None:
    # started on the identity, knots that move by at most a learning rate per step are still on their way after the
    # last epoch: a rival that was never fitted proves nothing
    rows = draw_rows(3000, seed=14)
    fresh = draw_rows(6000, seed=15)
    for drawn in (rows, fresh):
        truth = 1 / (1 + np.exp(3 - drawn["uncalibrated_logit"]))
        drawn["label"] = (np.random.default_rng(len(truth)).random(len(truth)) < truth).astype(np.int8)
    calibrator, _ = run(tmp_path, ranks, rows, {"auxiliary": {"enabled": False}, "learning_rate": 0.002})
    curve = fit_global_curve(cells_of(rows)).evaluate(fresh["uncalibrated_logit"].astype(float))
    best = log_loss(fresh, fresh["uncalibrated_logit"] - 3.0)
    found = log_loss(fresh, score(calibrator, fresh))
    assert found < log_loss(fresh, curve) + 0.001
    assert best - 0.002 < found < best + 0.01 < log_loss(fresh, fresh["uncalibrated_logit"].astype(float)) - 0.2


def test_steps_that_only_harm_are_taken_back(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(1000, seed=16)
    calibrator, told = run(tmp_path, ranks, rows, {"auxiliary": {"enabled": False}, "learning_rate": 3.0})
    curve = [epoch["held_out_loss"] for epoch in told["loss_curves"]["neucalib"]]
    assert told["chosen_epoch"] == 0 and curve[0] < min(curve[1:])
    start = fit_global_curve(cells_of(rows)).evaluate(calibrator.table.bin_bounds_RJ[0].numpy())
    np.testing.assert_array_equal(calibrator.table.knots_RJ[0].numpy(), start)


def test_penalty_holds_the_function_up(tmp_path: Path, ranks: Ranks) -> None:
    # the best function falls: response where the logit is low. Without a penalty it is found, with one it is not
    rows = draw_rows(2000, seed=13)
    rows["label"] = (rows["uncalibrated_logit"] < -1).astype(np.int8)
    rows = hold_out(rows, 0)  # without held-out rows the last epoch counts, not the best
    falls, told_falls = [], []
    for penalty in (0.0, 10.0):
        changes = {"penalty_weight": penalty, "epochs": 10, "learning_rate": 0.02, "auxiliary": {"enabled": False}}
        calibrator, told = run(tmp_path / str(penalty), ranks, rows, changes)
        assert told["chosen_epoch"] == 10
        difference = np.diff(calibrator.table.knots_RJ[0].numpy())
        assert told["n_falling_bins"] == int(np.sum(difference < 0))
        told_falls.append(told["n_falling_bins"])
        falls.append(float(-np.minimum(difference, 0).sum()))
    assert falls[0] > 1 and told_falls[0] > 5
    assert falls[1] < 0.1 * falls[0]


def test_same_rows_and_seed_same_calibrator(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(600, seed=3)
    states = []
    for name, used in (("a", 0), ("b", 17)):
        torch.manual_seed(5)
        torch.rand(used)
        states.append(run(tmp_path / name, ranks, rows, {"epochs": 1})[0].state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_embedding_off_is_heeded(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(400, seed=3)
    calibrator, _ = run(tmp_path, ranks, rows, {"epochs": 1, "auxiliary": {"field_value_embedding": False}})
    assert calibrator.auxiliary is not None and calibrator.auxiliary.value_embedding is None


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_in_one_cell_stays_finite(tmp_path: Path, ranks: Ranks, label: int) -> None:
    rows = draw_rows(200, seed=2)
    rows |= {"label": np.full(200, label, np.int8), "uncalibrated_logit": np.full(200, 0.51, np.float32)}
    calibrator, _ = run(tmp_path, ranks, rows)
    assert calibrator.table.bin_bounds_RJ.shape == (1, 2)  # 100 bins merged to one of a cell's width
    logit = score(calibrator, FRESH)
    assert np.all(np.isfinite(logit))
    at = score(calibrator, rows)
    assert np.all(at > 2) if label else np.all(at < -2)


def hold_out(rows: Rows, part: int) -> Rows:
    return rows | {"hold_out": np.full_like(rows["hold_out"], part)}


def test_without_cells_or_rows_it_says_so(tmp_path: Path, ranks: Ranks) -> None:
    rows = draw_rows(200, seed=2)
    cells: LogitCells = cells_of(rows)
    files = write_rows(tmp_path, hold_out(rows, 1))
    with pytest.raises(NoCellsError, match="0 logit cells"):
        train_neucalib(config_of(tmp_path), cells.select(np.zeros(len(cells), bool)), SHAPE, *files, ranks)
    with pytest.raises(StreamError, match=r"hold_out=0: no rows to train the neucalib on"):
        train_neucalib(config_of(tmp_path), cells, SHAPE, *files, ranks)


def test_rows_of_a_field_value_that_the_cells_do_not_know_are_refused(tmp_path: Path, ranks: Ranks) -> None:
    rows = hold_out(draw_rows(200, seed=2), 0)
    cells = cells_of(rows).select(cells_of(rows).field_value_id < 2)
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        train_neucalib(config_of(tmp_path), replace(cells, n_values=2), SHAPE, *write_rows(tmp_path, rows), ranks)
