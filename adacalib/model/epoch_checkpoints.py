"""What a training needs to go on after an epoch, kept on disk: the last few epochs, safetensors and JSON."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adacalib.model.checkpoint import ArtifactError, fingerprint_of, load_artifact, publish_artifact
from adacalib.model.distributed import Ranks, gather_json


class CheckpointMismatch(ValueError):
    """The checkpoint belongs to another training."""


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a loss curve; epoch 0 is the module before any step.

    Attributes:
        epoch: from 0.
        training_loss: mean over the epoch's rows while the parameters moved; None for epoch 0.
        held_out_loss: mean over the held-out rows after the epoch; None where there are none.
        rows: rows trained on, over all ranks.
        seconds: of wall clock on this rank, without the held-out rows.
        waiting_share: share of them spent waiting for data.
    """

    epoch: int
    training_loss: float | None
    held_out_loss: float | None
    rows: int
    seconds: float
    waiting_share: float

    def as_json(self) -> dict[str, Any]:
        """The record as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True)
class EpochState:
    """A training after `epoch` epochs.

    Attributes:
        module: its state.
        optimizer: "INDEX OF THE PARAMETER.NAME OF THE MOMENT" → tensor.
        best_module: the module's state at `best_epoch`, the epoch of least held-out loss (0 without held-out rows), or
            the last one where the plan keeps that.
        records: the loss curve so far.
    """

    epoch: int
    module: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    best_module: dict[str, Tensor]
    best_epoch: int
    best_loss: float | None
    records: tuple[EpochRecord, ...]

    @staticmethod
    def flatten_optimizer(state: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The optimizer's state as named tensors, copied."""
        return {
            f"{index}.{name}": torch.as_tensor(moment).detach().clone()
            for index, moments in state.items()
            for name, moment in moments.items()
        }

    def optimizer_by_parameter(self) -> dict[int, dict[str, Tensor]]:
        """The inverse of `flatten_optimizer`."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, moment in self.optimizer.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = moment
        return state


class EpochCheckpoints:
    """The checkpoints of one training: folder/epoch-00001, …; rank 0 writes, every rank reads.

    Args:
        folder: of this training alone, reachable from every rank.
        keep: how many of the last epochs stay.
        identity: what JSON can hold: all that decides the training's result. Only a checkpoint of the same
            identity is loaded.
    """

    def __init__(self, folder: Path, keep: int, identity: Mapping[str, Any], ranks: Ranks) -> None:
        self.folder, self.keep, self.identity, self.ranks = folder, keep, dict(identity), ranks

    def clear(self) -> None:
        """Removes all checkpoints, of whatever training."""
        if self.ranks.is_first:
            shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, state: EpochState) -> None:
        """Writes a checkpoint, complete or not at all, then removes those no longer kept."""
        if not self.ranks.is_first:
            return
        position = {
            "epoch": state.epoch,
            "best_epoch": state.best_epoch,
            "best_loss": state.best_loss,
            "records": [record.as_json() for record in state.records],
        }
        publish_artifact(
            self.folder / f"epoch-{state.epoch:05d}",
            {"module": state.module, "optimizer": state.optimizer, "best_module": state.best_module},
            {"position": position, "identity": {"fingerprint": fingerprint_of(self.identity), **self.identity}},
        )
        for old in self._list()[: -self.keep]:
            shutil.rmtree(old)

    def load(self) -> EpochState | None:
        """The last checkpoint's state; None when there is none yet.

        Raises:
            CheckpointMismatch: it belongs to other settings, data or another number of ranks.
            ArtifactError: it is damaged.
        """
        found = self._list()
        name = gather_json(self.ranks, found[-1].name if found else None)[0]  # rank 0's view counts
        if name is None:
            return None
        path = self.folder / name
        try:
            artifact = load_artifact(path)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; or delete {path} to resume from the epoch before it") from error
        self._check_identity(path, artifact.documents["identity"])
        position = artifact.documents["position"]
        return EpochState(
            epoch=position["epoch"],
            module=artifact.tensors["module"],
            optimizer=artifact.tensors["optimizer"],
            best_module=artifact.tensors["best_module"],
            best_epoch=position["best_epoch"],
            best_loss=position["best_loss"],
            records=tuple(EpochRecord(**record) for record in position["records"]),
        )

    def _list(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if re.fullmatch(r"epoch-\d{5}", path.name))

    def _check_identity(self, path: Path, theirs: dict[str, Any]) -> None:
        if theirs["fingerprint"] == fingerprint_of(self.identity):
            return
        keys = sorted((self.identity.keys() | theirs.keys()) - {"fingerprint"})
        different = [key for key in keys if fingerprint_of(self.identity.get(key)) != fingerprint_of(theirs.get(key))]
        shown = "; ".join(
            f"{key}: {_shorten(theirs.get(key))} there, {_shorten(self.identity.get(key))} here" for key in different
        )
        raise CheckpointMismatch(
            f"{path}: a checkpoint of another training ({shown}); train without resume, or with what it was made with"
        )


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
