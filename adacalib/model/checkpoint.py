"""Publishes and loads artifacts: directories of safetensors and JSON files, never pickle.

An artifact appears under its name complete or not at all. Its files are checked at every load against the SHA-256
sums written beside them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

CHECKSUMS = "_checksums.json"

Tensors = Mapping[str, Tensor]


class ArtifactError(RuntimeError):
    """An artifact is missing, incomplete or not what was written."""


@dataclass(frozen=True)
class Artifact:
    """What a directory holds.

    Attributes:
        tensors: per safetensors file (without its ending) name → tensor, on the CPU.
        documents: per JSON file (without its ending) its content, the records among them.
        fingerprint: SHA-256 of all but the records: the same training gives the same fingerprint.
    """

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Any]
    fingerprint: str


def publish_artifact(
    directory: str | Path,
    tensors: Mapping[str, Tensors],
    documents: Mapping[str, Any],
    records: Mapping[str, Any] | None = None,
) -> str:
    """Writes an artifact to a temporary sibling and renames it; replaces one of the same name.

    Args:
        tensors: file stem → name → tensor.
        documents: file stem → what JSON can hold: what the artifact is.
        records: file stem → what JSON can hold: how it came to be (loss curve, seconds). Checked at load like the
            rest, but not part of the fingerprint.

    Returns:
        The fingerprint.

    Raises:
        ValueError: a stem stands twice among documents and records, or a number is not finite.
    """
    directory = Path(directory)
    records = records or {}
    if twice := sorted(set(documents) & set(records)):
        raise ValueError(f"{directory}: {', '.join(twice)} among documents and records at once; name them apart")
    contents = {f"{stem}.safetensors": format_tensors(_standalone(named)) for stem, named in tensors.items()}
    contents |= {f"{stem}.json": _format_json(document) for stem, document in {**documents, **records}.items()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
    fingerprint = _combine({name: sums[name] for name in sums if name.removesuffix(".json") not in records})
    contents[CHECKSUMS] = _format_json({"fingerprint": fingerprint, "sha256": sums})
    temporary = directory.with_name(f".{directory.name}-{uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        for name, content in contents.items():
            _write_through(temporary / name, content)
        _replace(directory, temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for leftover in directory.parent.glob(f".{directory.name}-*"):  # of a writer that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    return fingerprint


def load_artifact(directory: str | Path) -> Artifact:
    """Reads an artifact and checks every file.

    Raises:
        ArtifactError: the directory or a file is missing, truncated or changed.
    """
    directory = Path(directory)
    checksums = _read_checksums(directory)
    tensors, documents = {}, {}
    for name, expected in checksums["sha256"].items():
        content = _read(directory / name)
        if hashlib.sha256(content).hexdigest() != expected:
            raise ArtifactError(f"{directory / name}: truncated or changed since it was written; {_NEXT_STEP}")
        stem, _, ending = name.rpartition(".")
        if ending == "safetensors":
            tensors[stem] = _parse_tensors(content, directory / name)
        else:
            documents[stem] = json.loads(content)
    return Artifact(tensors, documents, checksums["fingerprint"])


def fingerprint(directory: str | Path) -> str:
    """The fingerprint of an artifact as it was published; hexadecimal.

    Raises:
        ArtifactError: there is no such artifact.
    """
    return str(_read_checksums(Path(directory))["fingerprint"])


def fingerprint_of(document: Any) -> str:
    """SHA-256 of what JSON can hold, the same for any order of keys; hexadecimal."""
    return hashlib.sha256(_format_json(document)).hexdigest()


_NEXT_STEP = "run the stage that writes it again, or restore the whole directory from a copy"


def _standalone(named: Tensors) -> dict[str, Tensor]:
    # safetensors refuses tensors that share memory
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}


def _format_json(document: Any) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode()


def _combine(sums: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name} {sums[name]}\n" for name in sorted(sums)).encode()).hexdigest()


def _parse_tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return parse_tensors(content)
    except SafetensorError as error:
        raise ArtifactError(f"{path}: not a safetensors file ({error}); {_NEXT_STEP}") from error


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _replace(directory: Path, temporary: Path) -> None:
    old = temporary.with_name(temporary.name + "-old")
    if directory.exists():
        os.rename(directory, old)
    try:
        os.rename(temporary, directory)
    except OSError:
        if old.exists():
            os.rename(old, directory)  # what stood there still does
        raise
    shutil.rmtree(old, ignore_errors=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}); {_NEXT_STEP}") from error


def _read_checksums(directory: Path) -> dict[str, Any]:
    path = directory / CHECKSUMS
    try:
        checksums: dict[str, Any] = json.loads(_read(path))
        if checksums.keys() >= {"fingerprint", "sha256"}:
            return checksums
    except (ValueError, AttributeError):
        pass
    raise ArtifactError(f"{path}: not a list of checksums; {_NEXT_STEP}")
