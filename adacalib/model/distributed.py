"""Ranks: the process group and what passes between its members.

One rank is the same as many: without torchrun's environment a group of one is set up, and everything below works.
Nothing is pickled between ranks.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from adacalib.config import TrainingConfig

Array = npt.NDArray[Any]


class RanksDisagree(RuntimeError):
    """What must be equal on all ranks is not."""


@dataclass(frozen=True)
class Ranks:
    """This process among its ranks.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.
        device: where its tensors live.
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """True on the one rank that prints and publishes."""
        return self.rank == 0


@contextmanager
def join_ranks(training: TrainingConfig, seed: int) -> Iterator[Ranks]:
    """Sets up the process group from torchrun's environment, and destroys it whatever happens.

    gloo on the CPU, NCCL where CUDA is; deterministic algorithms; the same seed on every rank. Without torchrun's
    environment there is one rank. The number of ranks is torchrun's, whatever training.ranks says.

    Raises:
        ValueError: there are GPUs, but fewer than ranks on this machine.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    use_cuda = torch.cuda.is_available()
    if use_cuda and local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"rank {rank}: this machine has {torch.cuda.device_count()} GPUs, one per rank is needed; start fewer, "
            "or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on the CPU"
        )
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    _make_repeatable(training, seed, device)
    dist.init_process_group(
        "nccl" if use_cuda else "gloo",
        timeout=timedelta(seconds=training.collective_timeout_seconds),
        rank=rank,
        world_size=world_size,
        store=dist.HashStore() if world_size == 1 else None,  # type: ignore[attr-defined]
        init_method=None if world_size == 1 else "env://",
        device_id=device if use_cuda else None,
    )
    try:
        yield Ranks(rank, world_size, device)
    except Exception as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # from here torchrun takes what it says about this rank
            get_error_handler().record_exception(error)
        raise
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def seed_rank(ranks: Ranks, seed: int, epoch: int) -> None:
    """Seeds torch's default generator of this rank for one epoch, so that a resumed run draws the same noise."""
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch, ranks.rank]).generate_state(1)[0]))


def die_with_parent() -> None:
    """Asks Linux to end this process when the process that started it ends, however it ends."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def sum_over_ranks(ranks: Ranks, values: Array) -> Array:
    """Adds up an array over the ranks, element by element; every rank gets the sum.

    Args:
        values: int64 or float64, of the same shape on every rank.
    """
    return begin_sum_over_ranks(ranks, values)()


def begin_sum_over_ranks(ranks: Ranks, values: Array) -> Callable[[], Array]:
    """`sum_over_ranks` in two parts: what is returned waits for the sum and gives it.

    Between the two this rank may compute, and take part in other collectives, in the same order on every rank.
    """
    if ranks.world_size == 1:
        own = np.array(values)
        return lambda: own
    tensor = torch.from_numpy(np.array(values)).to(ranks.device)
    work = dist.all_reduce(tensor, async_op=True)

    def wait() -> Array:
        work.wait()
        return np.asarray(tensor.cpu().numpy())

    return wait


def gather_json(ranks: Ranks, value: Any) -> list[Any]:
    """Every rank's value (anything JSON can hold) in the order of the ranks, on every rank."""
    payload = json.dumps(value).encode()
    lengths = np.zeros(ranks.world_size, np.int64)
    lengths[ranks.rank] = len(payload)
    lengths = sum_over_ranks(ranks, lengths)
    padded = torch.zeros(int(lengths.max()), dtype=torch.uint8, device=ranks.device)
    padded[: len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8).to(ranks.device)
    gathered = [torch.zeros_like(padded) for _ in range(ranks.world_size)]
    dist.all_gather(gathered, padded)
    return [
        json.loads(tensor.cpu().numpy().tobytes()[:length])
        for tensor, length in zip(gathered, lengths.tolist(), strict=True)
    ]


def broadcast_arrays(ranks: Ranks, arrays: Mapping[str, Array] | None) -> dict[str, Array]:
    """Sends arrays from rank 0 to all ranks.

    Args:
        arrays: name → array of numbers or booleans on rank 0; ignored (None will do) on the others.
    """
    own = {name: np.asarray(array) for name, array in (arrays or {}).items()} if ranks.is_first else {}
    header = gather_json(ranks, [[name, array.dtype.str, array.shape] for name, array in own.items()])[0]
    received = {}
    for name, dtype, shape in header:
        array = np.array(own[name], order="C") if ranks.is_first else np.empty(shape, np.dtype(dtype))
        if array.nbytes:
            tensor = torch.from_numpy(array.reshape(-1).view(np.uint8)).to(ranks.device)
            dist.broadcast(tensor, src=0)
            array = tensor.cpu().numpy().view(np.dtype(dtype)).reshape(shape)
        received[name] = array
    return received


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_equal_on_ranks(ranks: Ranks, tensors: Mapping[str, torch.Tensor], what: str) -> None:
    """Checks that tensors are the same to the last bit on every rank.

    Raises:
        RanksDisagree: they are not; on every rank.
    """
    digests: Sequence[str] = gather_json(ranks, digest_of(tensors))
    if different := [rank for rank, digest in enumerate(digests) if digest != digests[0]]:
        raise RanksDisagree(
            f"{what}: ranks {', '.join(map(str, different))} differ from rank 0, so the result is not to be trusted; "
            "check that all ranks run the same versions on the same kind of machine"
        )


def wait_for_all(ranks: Ranks) -> None:
    """Returns when every rank has got here."""
    sum_over_ranks(ranks, np.zeros(1, np.int64))


def _make_repeatable(training: TrainingConfig, seed: int, device: torch.device) -> None:
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
        torch.cuda.set_device(device)
    torch.set_num_threads(training.threads_per_rank)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
