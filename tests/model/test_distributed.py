"""Ranks and what passes between them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from adacalib.config import TrainingConfig
from adacalib.model.distributed import (
    RanksDisagree,
    broadcast_arrays,
    check_equal_on_ranks,
    digest_of,
    gather_json,
    join_ranks,
    seed_rank,
    sum_over_ranks,
)

TRAINING = TrainingConfig(collective_timeout_seconds=30)


def test_without_torchrun_there_is_one_rank_and_everything_works() -> None:
    with join_ranks(TRAINING, seed=1) as ranks:
        assert (ranks.rank, ranks.world_size, ranks.is_first) == (0, 1, True)
        assert sum_over_ranks(ranks, np.array([[1.5, 2.0]])).tolist() == [[1.5, 2.0]]
        assert gather_json(ranks, {"a": None}) == [{"a": None}]
        assert broadcast_arrays(ranks, {"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
        check_equal_on_ranks(ranks, {"w": torch.ones(1)}, "w")


def test_the_group_ends_and_settings_return_whatever_happens() -> None:
    threads = torch.get_num_threads()
    training = TRAINING.model_copy(update={"threads_per_rank": threads + 1})
    with pytest.raises(RuntimeError, match="inside"), join_ranks(training, seed=1):
        assert torch.get_num_threads() == threads + 1
        assert torch.are_deterministic_algorithms_enabled()
        raise RuntimeError("inside")
    assert not dist.is_initialized()
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_seed_decides_the_initial_parameters() -> None:
    drawn = []
    for seed in (1, 1, 2):
        with join_ranks(TRAINING, seed):
            drawn.append(torch.nn.Linear(3, 1).weight.tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_noise_of_an_epoch_does_not_depend_on_what_was_drawn_before() -> None:
    with join_ranks(TRAINING, seed=1) as ranks:
        seed_rank(ranks, 1, epoch=2)
        first = torch.rand(2).tolist()
        torch.rand(5)
        seed_rank(ranks, 1, epoch=2)
        assert torch.rand(2).tolist() == first
        seed_rank(ranks, 1, epoch=3)
        assert torch.rand(2).tolist() != first


def test_a_digest_is_sha256_over_names_types_shapes_and_bytes() -> None:
    # 1.0 as little-endian float32 is 00 00 80 3f
    expected = hashlib.sha256(b"b torch.float32 (1,);\x00\x00\x80\x3f").hexdigest()
    assert digest_of({"b": torch.ones(1)}) == expected
    same = {"x": torch.zeros(2), "y": torch.tensor(1)}
    assert digest_of(same) == digest_of(dict(reversed(same.items())))
    assert digest_of({"x": torch.zeros(1)}) != digest_of({"x": -torch.zeros(1)})  # +0 and -0 differ in bits
    assert digest_of({"x": torch.zeros(2)}) != digest_of({"x": torch.zeros(1, 2)})


def test_a_failing_rank_is_recorded_where_torchrun_looks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(RanksDisagree), join_ranks(TRAINING, seed=1):
        raise RanksDisagree("toy parameters differ")
    assert "RanksDisagree: toy parameters differ" in (tmp_path / "error.json").read_text()


def test_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ValueError, match="has 1 GPUs, one per rank is needed"), join_ranks(TRAINING, seed=1):
        pass


def test_two_ranks_add_up_gather_and_broadcast(two_ranks: list[dict[str, Any]]) -> None:
    for result in two_ranks:
        helpers = result["helpers"]
        assert result["world_size"] == 2
        assert helpers["sum"] == [3.0, 1.0]  # 1.5 + 1.5 and 0 + 1
        assert helpers["gather"] == [{"rank": 0, "long": "x"}, {"rank": 1, "long": "x" * 11}]
        assert helpers["broadcast"] == {
            "int": ["<i8", [[0, 1, 2], [3, 4, 5]]],
            "float": ["<f8", [0.1, -0.0]],
            "empty": ["<f4", []],
            "bool": ["|b1", [True, False, True]],
        }
        assert result["threads"] == 1  # training.threads_per_rank as it is unless set


def test_two_ranks_draw_different_noise(two_ranks: list[dict[str, Any]]) -> None:
    assert two_ranks[0]["helpers"]["noise"] != two_ranks[1]["helpers"]["noise"]


def test_a_difference_between_ranks_is_an_error_on_all(two_ranks: list[dict[str, Any]]) -> None:
    for result in two_ranks:
        assert result["disagreement"].startswith("RanksDisagree: toy parameters: ranks 1 differ from rank 0")
