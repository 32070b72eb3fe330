"""What the tests want to know about two ranks: run by `launch` on each, it leaves one JSON file per rank.

One start of two processes serves all of it; tests/model/test_training.py and test_distributed.py read the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adacalib.config import read_config
from adacalib.model.distributed import (
    Ranks,
    broadcast_arrays,
    check_equal_on_ranks,
    gather_json,
    join_ranks,
    seed_rank,
    sum_over_ranks,
    wait_for_all,
)
from adacalib.model.row_files import open_rows
from adacalib.model.stream import stream_batches
from adacalib.model.training import train
from tests.model.toy_training import ToyModel, noted_gradients, toy_loss, toy_plan


def main(arguments: Sequence[str]) -> None:
    config = read_config(arguments[1])
    folder = Path(config.runs_dir).parent
    with join_ranks(config.training, config.seed) as ranks:
        result = {
            "world_size": ranks.world_size,
            "threads": torch.get_num_threads(),
            "helpers": check_helpers(ranks),
            "disagreement": error_of(
                lambda: check_equal_on_ranks(ranks, {"w": torch.ones(2) * (1 + ranks.rank)}, "toy parameters")
            ),
            "streamed": {name: stream_ids(ranks, folder / name) for name in ("uneven", "single")},
            "uneven": train_on(ranks, folder / "uneven"),
            "uneven_again": train_on(ranks, folder / "uneven"),
            "single": train_on(ranks, folder / "single"),
            "one_step": train_on(ranks, folder / "uneven", epochs=1, batch_size=1000),
            "resume": check_resume(ranks, folder, "best_epoch"),
            "resume_last_epoch": check_resume(ranks, folder, "last_epoch"),
            "patience": check_patience(ranks, folder),
            "non_finite": check_non_finite(ranks, folder / "faulty"),
        }
    (folder / f"rank-{ranks.rank}.json").write_text(json.dumps(result))


def check_helpers(ranks: Ranks) -> dict[str, Any]:
    arrays = {
        "int": np.arange(6).reshape(2, 3),
        "float": np.array([0.1, -0.0]),
        "empty": np.zeros((0, 4), np.float32),
        "bool": np.array([True, False, True]),
    }
    received = broadcast_arrays(ranks, arrays if ranks.is_first else None)
    seed_rank(ranks, 5, 1)
    noise = torch.rand(1).item()
    return {
        "sum": sum_over_ranks(ranks, np.array([1.5, ranks.rank])).tolist(),
        "gather": gather_json(ranks, {"rank": ranks.rank, "long": "x" * (1 + 10 * ranks.rank)}),
        "broadcast": {name: [array.dtype.str, array.tolist()] for name, array in received.items()},
        "noise": noise,
    }


def stream_ids(ranks: Ranks, table: Path) -> list[list[int]]:
    """Per epoch the ids that this rank sees."""
    rows = open_rows(table)
    return [
        [
            int(row_id)
            for batch in stream_batches(
                rows, ["row_id"], 8, rank=ranks.rank, world_size=ranks.world_size, seed=11, epoch=epoch
            )
            for row_id in batch.columns["row_id"]
        ]
        for epoch in (1, 2)
    ]


def train_on(ranks: Ranks, table: Path, **changes: Any) -> dict[str, Any]:
    model = ToyModel(seed=3 + ranks.rank)  # rank 0's start is the one that counts
    plan = toy_plan(table.parent / f"{table.name}-run", **changes)
    with noted_gradients(model) as steps:
        result = train(model, toy_loss, open_rows(table), plan, ranks)
    return {**describe(model, result.loss_curve()), "gradients": steps}


def check_resume(ranks: Ranks, folder: Path, keeps: str) -> dict[str, Any]:
    """Three epochs at once, and two epochs, a failure, and the third."""
    rows, held_out = open_rows(folder / "uneven"), open_rows(folder / "single")

    def run(name: str, resume: bool, on_epoch: Callable[[int], None] | None = None) -> dict[str, Any]:
        plan = toy_plan(folder / keeps / name, keeps=keeps)
        plan = replace(plan, training=plan.training.model_copy(update={"resume": resume}))
        model = ToyModel(noise=0.5)
        result = train(model, toy_loss, rows, plan, ranks, held_out=held_out, on_epoch=on_epoch)
        return {**describe(model, result.loss_curve()), "chosen": result.chosen_epoch}

    def fail_at_three(epoch: int) -> None:
        if epoch == 3:
            raise RuntimeError("power cut")

    whole = run("whole", resume=False)
    failure = error_of(lambda: run("parts", resume=False, on_epoch=fail_at_three))
    wait_for_all(ranks)  # rank 0 writes the checkpoints
    kept = sorted(path.name for path in (folder / keeps / "parts" / "checkpoints").iterdir())
    return {"whole": whole, "failure": failure, "kept": kept, "resumed": run("parts", resume=True)}


def check_patience(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """A training that overfits, and ends early."""
    plan = toy_plan(folder / "patience", epochs=30, learning_rate=0.3, keeps="best_epoch", patience=2)
    model = ToyModel()
    rows, held_out = open_rows(folder / "uneven"), open_rows(folder / "single")
    result = train(model, toy_loss, rows, plan, ranks, held_out=held_out)
    return {**describe(model, result.loss_curve()), "chosen": result.chosen_epoch}


def check_non_finite(ranks: Ranks, table: Path) -> dict[str, Any]:
    model = ToyModel()
    before = describe(model, [])
    plan = toy_plan(table.parent / "faulty-run", batch_size=1000)
    error = error_of(lambda: train(model, toy_loss, open_rows(table), plan, ranks))
    return {"error": error, "before": before, "after": describe(model, [])}


def describe(model: torch.nn.Module, loss_curve: list[dict[str, Any]]) -> dict[str, Any]:
    state = model.state_dict()
    digest = hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()
    return {
        "digest": digest,
        "parameters": {name: tensor.tolist() for name, tensor in state.items()},
        "losses": [[record["training_loss"], record["held_out_loss"], record["rows"]] for record in loss_curve],
    }


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
