"""The training loop, on one rank here and on two in tests/model/rank_checks.py."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from adacalib.config import TrainingConfig
from adacalib.model import training_plan
from adacalib.model.checkpoint import ArtifactError
from adacalib.model.distributed import Ranks, join_ranks
from adacalib.model.epoch_checkpoints import CheckpointMismatch, EpochRecord
from adacalib.model.progress import Progress
from adacalib.model.row_files import RowFiles, StreamError, open_rows
from adacalib.model.training import (
    ALL_ROWS,
    LAST_WAS_BEST,
    NonFiniteLoss,
    StepLoss,
    TrainingPlan,
    TrainingResult,
    compute_mean_loss,
    train,
    train_on_all,
)
from tests.model.toy_training import (
    ToyModel,
    noted_gradients,
    state_bytes,
    toy_columns,
    toy_loss,
    toy_plan,
    write_rows,
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with join_ranks(TrainingConfig(collective_timeout_seconds=30), seed=1) as joined:
        yield joined


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> RowFiles:
    return write_rows(tmp_path_factory.mktemp("rows") / "t", {"a.parquet": [40, 25], "b.parquet": [30]})


class Constant(nn.Module):
    """One parameter c; its loss on a row is (c - row_id)²."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.tensor(start))


def squared_distance(module: nn.Module, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    loss_B = (module.c - columns["row_id"]) ** 2
    return (columns["weight"] * loss_B).sum(), columns["weight"].sum()


def test_one_step_by_hand(tmp_path: Path, ranks: Ranks) -> None:
    # Rows 0, 1, 2 of weights 0.5, 1, 1.5 at c = 0: mean loss (0.5·0 + 1·1 + 1.5·4) / 3 = 7/3; its gradient
    # 2·(0.5·0 − 1·1 − 1.5·2) / 3 = −8/3; Adam's first step is learning_rate against the gradient's sign: c = 0.1.
    module = Constant()
    plan = toy_plan(tmp_path, epochs=1, learning_rate=0.1)
    with noted_gradients(module) as steps:
        result = train(module, squared_distance, write_rows(tmp_path / "t", {"a.parquet": [3]}), plan, ranks)
    assert result.records[0].training_loss == pytest.approx(7 / 3)
    assert steps == [{"c": pytest.approx(-8 / 3)}]
    assert module.c.item() == pytest.approx(0.1, abs=1e-6)


def mean_loss_oracle(model: ToyModel, rows_per_group: list[int]) -> tuple[float, dict[str, Any]]:
    """Mean loss and its gradients over all rows at once, in float64, from the formula."""
    first_ids = np.cumsum([0, *rows_per_group[:-1]])
    parts = [toy_columns(n, int(first)) for n, first in zip(rows_per_group, first_ids, strict=True)]
    x, y, w = (np.concatenate([part[name] for part in parts]).astype(float) for name in ("features", "label", "weight"))
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    hidden = np.tanh(x @ weights["hidden.weight"].T + weights["hidden.bias"])
    logit = hidden @ weights["out.weight"][0] + weights["out.bias"][0]
    loss = w @ (np.logaddexp(0, logit) - y * logit) / w.sum()
    d_logit = w * (1 / (1 + np.exp(-logit)) - y) / w.sum()
    d_hidden = np.outer(d_logit, weights["out.weight"][0]) * (1 - hidden**2)
    return loss, {
        "out.weight": [d_logit @ hidden],
        "out.bias": [d_logit.sum()],
        "hidden.weight": d_hidden.T @ x,
        "hidden.bias": d_hidden.sum(axis=0),
        "unused": np.zeros(3),
    }


def test_gradients_on_one_rank_are_those_of_the_mean(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    model = ToyModel()
    loss, gradients = mean_loss_oracle(model, [40, 25, 30])
    with noted_gradients(model) as steps:
        result = train(model, toy_loss, rows, toy_plan(tmp_path, epochs=1, batch_size=1000), ranks)
    assert result.records[0].training_loss == pytest.approx(loss, rel=1e-6)
    assert len(steps) == 1
    for name, gradient in steps[0].items():
        np.testing.assert_allclose(gradient, gradients[name], rtol=1e-4, atol=1e-7)


def test_gradients_on_two_ranks_are_those_of_the_mean(two_ranks: list[dict[str, Any]]) -> None:
    # Unequal shares: rank 0 has 57 rows of other weights than rank 1's 50.
    loss, gradients = mean_loss_oracle(ToyModel(seed=3), [50, 30, 7, 20])
    for result in two_ranks:
        step = result["one_step"]
        assert step["losses"][0][0] == pytest.approx(loss, rel=1e-6)
        for name, gradient in step["gradients"][0].items():
            np.testing.assert_allclose(gradient, gradients[name], rtol=1e-4, atol=1e-7)


def test_one_and_two_ranks_end_with_the_same_parameters(
    tmp_path: Path, rank_folder: Path, ranks: Ranks, two_ranks: list[dict[str, Any]]
) -> None:
    model = ToyModel(seed=3)
    train(model, toy_loss, open_rows(rank_folder / "uneven"), toy_plan(tmp_path, epochs=1, batch_size=1000), ranks)
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(two_ranks[1]["one_step"]["parameters"][name], tensor, rtol=1e-4, atol=1e-6)


def test_an_epoch_sees_each_row_once_over_both_ranks(two_ranks: list[dict[str, Any]]) -> None:
    for table, n_rows in (("uneven", 107), ("single", 30)):
        first, second = (
            [row_id for result in two_ranks for row_id in result["streamed"][table][epoch]] for epoch in (0, 1)
        )
        assert sorted(first) == sorted(second) == list(range(n_rows))
        assert first != second
    assert [len(result["streamed"]["uneven"][0]) for result in two_ranks] == [57, 50]


def test_uneven_shards_and_a_rank_without_rows_train_on_all_rows(two_ranks: list[dict[str, Any]]) -> None:
    for result in two_ranks:
        for table, n_rows in (("uneven", 107), ("single", 30)):
            assert [rows for _, _, rows in result[table]["losses"]] == [n_rows] * 3
            losses = [loss for loss, _, _ in result[table]["losses"]]
            assert losses[2] < losses[0]
    assert sorted(len(result["streamed"]["single"][0]) for result in two_ranks) == [0, 30]


def test_ranks_end_bit_equal_and_a_repetition_too(two_ranks: list[dict[str, Any]]) -> None:
    first, second = two_ranks
    for name in ("uneven", "single", "one_step"):
        assert first[name]["digest"] == second[name]["digest"]
    assert first["uneven"]["digest"] == first["uneven_again"]["digest"] != first["single"]["digest"]


@pytest.mark.parametrize("which", ["resume", "resume_last_epoch"])
def test_two_ranks_resume_to_the_same_parameters(two_ranks: list[dict[str, Any]], which: str) -> None:
    for result in two_ranks:
        resume = result[which]
        assert resume["failure"] == "RuntimeError: power cut"
        assert resume["kept"] == ["epoch-00001", "epoch-00002"]
        assert resume["resumed"] == resume["whole"]


def test_a_loss_that_is_not_finite_on_one_rank_stops_both_before_they_move(two_ranks: list[dict[str, Any]]) -> None:
    for result in two_ranks:
        found = result["non_finite"]
        assert found["error"].startswith("NonFiniteLoss: toy: training loss is not finite, and no step was taken")
        assert "rank 1: loss nan at weight 19.5 on rows of" in found["error"]
        assert "bad.parquet" in found["error"] and "good.parquet" not in found["error"]
        assert found["before"]["digest"] == found["after"]["digest"]


def resumable(folder: Path, resume: bool = True, **changes: Any) -> TrainingPlan:
    plan = toy_plan(folder, **changes)
    return replace(plan, training=plan.training.model_copy(update={"resume": resume}))


def test_resume_equals_the_whole_run_with_noise_and_a_schedule(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    def run(folder: Path, stop_before: int | None, resume: bool) -> tuple[ToyModel, TrainingResult | None]:
        model = ToyModel(noise=0.5)

        def on_epoch(epoch: int) -> None:
            if epoch == stop_before:
                raise KeyboardInterrupt
            model.noise = 1 / epoch

        try:
            return model, train(model, toy_loss, rows, resumable(folder, resume), ranks, on_epoch=on_epoch)
        except KeyboardInterrupt:
            return model, None

    whole, whole_result = run(tmp_path / "whole", None, resume=False)
    run(tmp_path / "parts", 3, resume=False)
    resumed, resumed_result = run(tmp_path / "parts", None, resume=True)
    assert whole_result is not None and resumed_result is not None
    assert state_bytes(resumed) == state_bytes(whole)
    assert [r.training_loss for r in resumed_result.records] == [r.training_loss for r in whole_result.records]
    # a finished training resumes to itself without a step
    again, _ = run(tmp_path / "parts", 1, resume=True)
    assert state_bytes(again) == state_bytes(whole)


def test_without_resume_old_checkpoints_go(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    train(ToyModel(), toy_loss, rows, toy_plan(tmp_path, epochs=4), ranks)
    assert names(tmp_path) == ["epoch-00003", "epoch-00004"]  # keep_checkpoints is 2
    train(ToyModel(), toy_loss, rows, toy_plan(tmp_path, epochs=1), ranks)
    assert names(tmp_path) == ["epoch-00001"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    train(ToyModel(), toy_loss, rows, toy_plan(tmp_path), ranks)
    with pytest.raises(
        CheckpointMismatch, match=r"settings: \{'depth': 2\} there, \{'depth': 3\} here\); train without"
    ):
        train(ToyModel(), toy_loss, rows, resumable(tmp_path, settings={"depth": 3}), ranks)
    with pytest.raises(CheckpointMismatch, match=r"learning_rate: 0\.05 there, 0\.1 here"):
        train(ToyModel(), toy_loss, rows, resumable(tmp_path, learning_rate=0.1), ranks)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    train(ToyModel(), toy_loss, rows, toy_plan(tmp_path), ranks)
    path = tmp_path / "checkpoints" / "epoch-00003" / "module.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"module\.safetensors: truncated.*or delete .*epoch-00003 to resume from"):
        train(ToyModel(), toy_loss, rows, resumable(tmp_path), ranks)


def test_the_best_epoch_is_kept_and_may_be_the_start(
    tmp_path: Path, ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    # Training rows have mean id 4.5, the held-out row has id 0: every step from 0 makes its loss worse.
    rows = write_rows(tmp_path / "t", {"a.parquet": [10]})
    held_out = write_rows(tmp_path / "h", {"a.parquet": [1]})
    plan = toy_plan(tmp_path, keeps="best_epoch")
    module = Constant()
    result = train(module, squared_distance, rows, plan, ranks, held_out=held_out)
    assert result.chosen_epoch == 0
    assert module.c.item() == 0
    assert [record.epoch for record in result.records] == [0, 1, 2, 3]
    assert result.records[0].held_out_loss == 0
    assert result.records[3].held_out_loss == pytest.approx(0.15**2, rel=0.01)  # three steps of 0.05

    # From -0.1 the second step lands on 0, the best there is; the third overshoots.
    module = Constant(-0.1)
    result = train(module, squared_distance, rows, plan, ranks, held_out=held_out)
    assert result.chosen_epoch == 2
    assert module.c.item() == pytest.approx(0, abs=1e-4)
    assert not caplog.messages

    # From -1 the loss still falls in the last epoch, which is said.
    result = train(Constant(-1.0), squared_distance, rows, plan, ranks, held_out=held_out)
    assert result.chosen_epoch == 3
    assert caplog.messages == [LAST_WAS_BEST % (plan.what, 3)]


def test_what_an_epoch_leaves_behind_is_the_mean_of_its_steps(tmp_path: Path, ranks: Ranks) -> None:
    # Two steps of 0.05 an epoch from −1 towards row 0: −0.95 and −0.90, then −0.85 and −0.80.
    rows = write_rows(tmp_path / "t", {"a.parquet": [10]})
    held_out = write_rows(tmp_path / "h", {"a.parquet": [1]})
    plan = toy_plan(tmp_path, epochs=2, batch_size=5, keeps="best_epoch")
    module = Constant(-1.0)
    result = train(module, squared_distance, rows, plan, ranks, held_out=held_out)
    assert result.chosen_epoch == 2
    assert module.c.item() == pytest.approx(-0.825, abs=2e-3)
    losses = [record.held_out_loss for record in result.records]
    assert losses == pytest.approx([1, 0.925**2, 0.825**2], abs=4e-3)

    last = Constant(-1.0)
    train(last, squared_distance, rows, replace(plan, keeps="last_step"), ranks)
    assert last.c.item() == pytest.approx(-0.8, abs=2e-3)

    # the last epoch's mean from 0 on, whatever held-out rows say: that 0 was the best
    last = Constant(0.0)
    result = train(last, squared_distance, rows, replace(plan, keeps="last_epoch"), ranks, held_out=held_out)
    assert result.chosen_epoch == 2
    assert last.c.item() == pytest.approx((0.15 + 0.2) / 2, abs=2e-3)


def test_training_on_all_rows_reads_the_held_out_ones_too(tmp_path: Path, ranks: Ranks) -> None:
    # rows 0 … 9 weigh .5, 1, 1.5 in turn, 9.5 in all, Σ weight · id is 43.5; row 0 of weight .5 is held out
    rows, held_out = write_rows(tmp_path / "t", {"a.parquet": [10]}), write_rows(tmp_path / "h", {"a.parquet": [1]})
    plan = toy_plan(tmp_path, epochs=150, learning_rate=0.1, keeps="best_epoch")
    module = Constant(4.0)
    train_on_all(module, squared_distance, rows, held_out, plan, ranks)
    assert module.c.item() == pytest.approx(43.5 / 10, abs=0.02)
    assert (plan.checkpoints / ALL_ROWS).is_dir()

    # another training, killed before it came to all rows, is resumed: what the one before left there is gone
    other = replace(plan, epochs=2)
    train(Constant(4.0), squared_distance, rows, other, ranks, held_out=held_out)
    again = replace(other, training=other.training.model_copy(update={"resume": True}))
    train(Constant(4.0), squared_distance, rows, again, ranks, held_out=held_out)
    train_on_all(Constant(4.0), squared_distance, rows, held_out, again, ranks)


def patient(folder: Path, patience: int | None, resume: bool = False, **changes: Any) -> TrainingPlan:
    return resumable(folder, resume, **{"epochs": 9, "keeps": "best_epoch", "patience": patience, **changes})


def losses_by_script(script: list[float]) -> StepLoss:
    """A held-out loss that ignores the module: the next of the script at each call (one batch, so one epoch)."""
    remaining = iter(script)

    def loss(module: nn.Module, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        weight = columns["weight"].sum()
        return next(remaining) * weight, weight

    return loss


@pytest.mark.parametrize(
    ("script", "patience", "best", "last"),
    [
        ([5, 4, 3, 3.5, 3.2, 1], 2, 2, 4),  # ends before the 1 that would come
        ([5, 4, 3, 3.5, 2, 2.5, 2.5, 2.5], 2, 4, 6),  # one epoch without gain is borne, and counting starts anew
        ([5, 4, 3, 3.5, 2], 1, 2, 3),
        ([5, 5, 5, 5], 2, 0, 2),  # as good is not better
        ([5, 6, 7, 4, 3, 2, 2, 2, 2, 1], 3, 5, 8),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 1, 9, 9),  # never without gain: all epochs
        ([5, 6, 7, 8, 9, 10, 11, 12, 13, 4], None, 9, 9),  # no patience asked for: all epochs
        ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 9, 0, 9),
    ],
)
def test_training_ends_when_patience_does(
    tmp_path: Path, ranks: Ranks, script: list[float], patience: int | None, best: int, last: int
) -> None:
    rows, held_out = write_rows(tmp_path / "t", {"a.parquet": [10]}), write_rows(tmp_path / "h", {"a.parquet": [1]})
    # where c stands after each epoch, of a training without early end
    path, module = [], Constant()
    plan = toy_plan(tmp_path / "path", epochs=10)
    train(module, squared_distance, rows, plan, ranks, on_epoch=lambda _: path.append(module.c.item()))
    module = Constant()
    loss = losses_by_script(script)
    plan = patient(tmp_path, patience)
    result = train(module, squared_distance, rows, plan, ranks, held_out=held_out, held_out_loss=loss)
    assert [record.epoch for record in result.records] == list(range(last + 1))
    assert [record.held_out_loss for record in result.records] == pytest.approx(script[: last + 1])
    assert result.chosen_epoch == best
    assert module.c.item() == path[best]


def test_a_training_that_has_ended_trains_no_further_after_a_resume(tmp_path: Path, ranks: Ranks) -> None:
    # c goes -.1, -.05, 0, .05, .1: the held-out row (id 0) prefers epoch 2, and patience ends at 4
    rows, held_out = write_rows(tmp_path / "t", {"a.parquet": [10]}), write_rows(tmp_path / "h", {"a.parquet": [1]})

    def run(resume: bool, stop_before: int) -> tuple[Constant, TrainingResult | None]:
        def on_epoch(epoch: int) -> None:
            assert epoch < 5
            if epoch == stop_before:
                raise KeyboardInterrupt

        module = Constant(-0.1)
        plan = patient(tmp_path, 2, resume)
        try:
            return module, train(module, squared_distance, rows, plan, ranks, held_out=held_out, on_epoch=on_epoch)
        except KeyboardInterrupt:
            return module, None

    whole, result = run(resume=False, stop_before=99)
    assert result is not None
    assert [record.epoch for record in result.records] == [0, 1, 2, 3, 4]
    assert (result.chosen_epoch, names(tmp_path)) == (2, ["epoch-00003", "epoch-00004"])
    again, same = run(resume=True, stop_before=1)
    assert same == result
    assert state_bytes(again) == state_bytes(whole)
    # cut off one epoch before the end, it ends there all the same
    assert run(resume=False, stop_before=4)[1] is None
    resumed, end = run(resume=True, stop_before=99)
    assert end is not None and end.chosen_epoch == 2
    assert [record.epoch for record in end.records] == [0, 1, 2, 3, 4]
    assert state_bytes(resumed) == state_bytes(whole)
    # more patience is another training
    with pytest.raises(CheckpointMismatch, match="patience: 2 there, 3 here"):
        train(Constant(-0.1), squared_distance, rows, patient(tmp_path, 3, True), ranks, held_out=held_out)


def test_patience_means_nothing_where_the_last_epoch_is_kept(tmp_path: Path, ranks: Ranks) -> None:
    rows, held_out = write_rows(tmp_path / "t", {"a.parquet": [10]}), write_rows(tmp_path / "h", {"a.parquet": [1]})
    plan = patient(tmp_path, 1, epochs=4, keeps="last_step")
    result = train(Constant(), squared_distance, rows, plan, ranks, held_out=held_out)
    assert (len(result.records), result.chosen_epoch) == (5, 4)


def test_two_ranks_end_at_the_same_epoch(two_ranks: list[dict[str, Any]]) -> None:
    first, second = (result["patience"] for result in two_ranks)
    assert first == second
    # uneven shares; the held-out row group is on one rank alone, and both know its loss
    losses = [held_out for _, held_out, _ in first["losses"]]
    best = losses.index(min(losses))
    assert first["chosen"] == best
    assert len(losses) - 1 == best + 2 < 30


def test_the_last_epoch_is_kept_otherwise(tmp_path: Path, ranks: Ranks) -> None:
    rows = write_rows(tmp_path / "t", {"a.parquet": [10]})
    held_out = write_rows(tmp_path / "h", {"a.parquet": [1]})
    module = Constant()
    result = train(module, squared_distance, rows, toy_plan(tmp_path), ranks, held_out=held_out)
    assert result.chosen_epoch == 3
    assert module.c.item() == pytest.approx(0.15, rel=0.01)
    assert result.loss_curve()[0]["held_out_loss"] == 0


def test_held_out_loss_may_be_another_one_and_is_in_eval_mode(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    modes = []

    def count_rows(module: nn.Module, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        modes.append(module.training)
        weight = torch.ones_like(columns["weight"])
        return 2 * weight.sum(), weight.sum()

    model = ToyModel()
    plan = toy_plan(tmp_path, epochs=1)
    result = train(model, toy_loss, rows, plan, ranks, held_out=rows, held_out_loss=count_rows)
    assert [record.held_out_loss for record in result.records] == [2, 2]
    assert modes and not any(modes)
    assert model.training
    loss, _ = mean_loss_oracle(model, [40, 25, 30])
    assert compute_mean_loss(model, toy_loss, rows, plan, ranks) == pytest.approx(loss, rel=1e-6)


def test_a_held_out_loss_that_is_not_finite(tmp_path: Path, rank_folder: Path, rows: RowFiles, ranks: Ranks) -> None:
    faulty = open_rows(rank_folder / "faulty")
    with pytest.raises(NonFiniteLoss, match=r"held-out loss is not finite.*bad\.parquet"):
        train(ToyModel(), toy_loss, rows, toy_plan(tmp_path), ranks, held_out=faulty)


def test_weights_that_add_up_to_nothing(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    def weightless(module: nn.Module, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        loss, weight = toy_loss(module, columns)
        return loss, 0 * weight

    with pytest.raises(NonFiniteLoss, match="at weight 0 on rows of"):
        train(ToyModel(), weightless, rows, toy_plan(tmp_path), ranks)


def test_rows_that_do_not_arrive_are_an_error(
    tmp_path: Path, rows: RowFiles, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = training_plan.stream_batches
    monkeypatch.setattr(
        training_plan, "stream_batches", lambda *args, **options: list(whole(*args, **options))[1:].__iter__()
    )
    with pytest.raises(StreamError, match="t: 79 rows arrived over all ranks, 95 were written"):
        train(ToyModel(), toy_loss, rows, toy_plan(tmp_path), ranks)


def test_nothing_to_train_on_or_to_choose_by(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    nothing = RowFiles("samples/split=train", (), ())
    with pytest.raises(StreamError, match="samples/split=train: no rows to train the toy on"):
        train(ToyModel(), toy_loss, nothing, toy_plan(tmp_path), ranks)
    for held_out in (None, nothing):
        with pytest.raises(ValueError, match="toy: no held-out rows to choose the epoch by"):
            train(ToyModel(), toy_loss, rows, toy_plan(tmp_path, keeps="best_epoch"), ranks, held_out=held_out)


@pytest.mark.parametrize(("batch_size", "world_size", "expected"), [(4096, 1, 4096), (4096, 3, 1365), (2, 4, 1)])
def test_the_batch_is_shared_by_the_ranks(tmp_path: Path, batch_size: int, world_size: int, expected: int) -> None:
    plan = toy_plan(tmp_path, batch_size=batch_size)
    assert plan.rank_batch_size(Ranks(0, world_size, torch.device("cpu"))) == expected


def show(terminal: bool, visible: bool = True) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=80, soft_wrap=True, highlight=False, color_system=None
    )
    with Progress("toy", 2, visible=visible, console=console) as progress:
        progress.start_epoch(1, steps=4)
        progress.step(loss=0.25, rows=1000, seconds=0.5, waiting_share=0.125)
        progress._bars.refresh()  # as a timer does
        progress.end_epoch(EpochRecord(1, 0.5, 0.75, 4000, 2.0, 0.25))
    output: str = console.file.getvalue()  # type: ignore[attr-defined]
    return output


def test_progress_is_a_bar_on_a_terminal_and_a_line_per_epoch_elsewhere() -> None:
    assert show(terminal=False).strip() == (
        "toy: epoch 1/2, loss 0.50000, held-out loss 0.75000, 4,000 rows, 2,000 samples/s, 25% waiting for data"
    )
    bar = show(terminal=True)
    for part in ("toy 1/2", "1/4", "loss 0.2500", "2,000/s", "12% waiting", "held-out loss 0.75000"):
        assert part in bar
    assert show(terminal=False, visible=False) == show(terminal=True, visible=False) == ""


def test_seconds_and_waiting_share_are_measured(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    record = train(ToyModel(), toy_loss, rows, toy_plan(tmp_path, epochs=1), ranks).records[0]
    assert record.seconds > 0 and 0 < record.waiting_share < 1
    assert record.training_loss is not None and math.isfinite(record.training_loss)


class ToyWithTable(ToyModel):
    """What it trains depends on a table that no checkpoint holds."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("table", torch.tensor([value]), persistent=False)


def test_resume_refuses_what_was_trained_for_other_tables_or_rows(tmp_path: Path, rows: RowFiles, ranks: Ranks) -> None:
    train(ToyWithTable(1.0), toy_loss, rows, resumable(tmp_path), ranks)
    train(ToyWithTable(1.0), toy_loss, rows, resumable(tmp_path), ranks)
    with pytest.raises(CheckpointMismatch, match="tables"):
        train(ToyWithTable(2.0), toy_loss, rows, resumable(tmp_path), ranks)
    with pytest.raises(CheckpointMismatch, match="rows_from"):
        train(ToyWithTable(1.0), toy_loss, replace(rows, origin="elsewhere"), resumable(tmp_path), ranks)
