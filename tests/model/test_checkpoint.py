"""Artifacts on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from adacalib.model.checkpoint import ArtifactError, fingerprint, fingerprint_of, load_artifact, publish_artifact

TENSORS = {
    "net": {"w": torch.tensor([[1.5, -0.0], [float("nan"), 3e-45]]), "n": torch.tensor(7)},
    "ids": {"i": torch.arange(3)},
}
DOCUMENTS = {"net": {"hidden": [2, 3], "name": "é"}}


def test_what_is_loaded_is_what_was_published_to_the_last_bit(tmp_path: Path) -> None:
    published = publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS, {"curve": [0.5]})
    artifact = load_artifact(tmp_path / "a")
    assert artifact.documents == {**DOCUMENTS, "curve": [0.5]}
    assert artifact.fingerprint == fingerprint(tmp_path / "a") == published
    for stem, named in TENSORS.items():
        assert artifact.tensors[stem].keys() == named.keys()
        for name, tensor in named.items():
            loaded = artifact.tensors[stem][name]
            assert loaded.dtype == tensor.dtype and loaded.shape == tensor.shape
            assert loaded.numpy().tobytes() == tensor.numpy().tobytes()


def test_no_file_is_a_pickle_and_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS)
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert set(files) == {"net.safetensors", "ids.safetensors", "net.json", "_checksums.json"}
    sums = json.loads(files["_checksums.json"])["sha256"]
    assert sums == {name: hashlib.sha256(files[name]).hexdigest() for name in files if name != "_checksums.json"}
    # a pickle starts with PROTO (\x80) or, zipped by torch.save, with PK
    assert not any(content.startswith((b"\x80", b"PK")) for content in files.values())


def test_fingerprint_follows_contents_but_not_records_or_names(tmp_path: Path) -> None:
    first = publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS, {"curve": [0.5]})
    assert publish_artifact(tmp_path / "b", TENSORS, DOCUMENTS, {"curve": [0.6]}) == first
    assert publish_artifact(tmp_path / "b", TENSORS, {"net": {"hidden": [2, 4], "name": "é"}}) != first
    moved = {"net": {**TENSORS["net"], "n": torch.tensor(8)}, "ids": TENSORS["ids"]}
    assert publish_artifact(tmp_path / "b", moved, DOCUMENTS) != first
    assert fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1}) != fingerprint_of({"a": 1, "b": 3})


def test_publishing_again_replaces_all_and_leaves_nothing_beside(tmp_path: Path) -> None:
    publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS)
    (tmp_path / ".a-0123").mkdir()  # of a writer that was killed
    publish_artifact(tmp_path / "a", {"other": {"x": torch.ones(1)}}, {})
    assert load_artifact(tmp_path / "a").tensors.keys() == {"other"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_publication_leaves_the_old_artifact(tmp_path: Path) -> None:
    before = publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS)
    with pytest.raises(ValueError, match="not JSON compliant"):
        publish_artifact(tmp_path / "a", TENSORS, {"net": float("nan")})
    with pytest.raises(OSError):
        publish_artifact(tmp_path / "a", TENSORS, {"no/such/folder": 1})  # fails while it writes
    assert load_artifact(tmp_path / "a").fingerprint == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_tensors_that_share_memory_or_are_strided(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    publish_artifact(tmp_path / "a", {"t": {"whole": whole, "row": whole[0], "turned": whole.T}}, {})
    loaded = load_artifact(tmp_path / "a").tensors["t"]
    assert loaded["row"].tolist() == [0, 1, 2]
    assert loaded["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("name", ["net.safetensors", "net.json"])
def test_a_truncated_changed_or_missing_file_is_named(tmp_path: Path, name: str) -> None:
    publish_artifact(tmp_path / "a", TENSORS, DOCUMENTS)
    path = tmp_path / "a" / name
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=rf"a/{name}: truncated or changed.*run the stage"):
            load_artifact(tmp_path / "a")
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"a/{name}: cannot be read \(No such file.*restore the whole directory"):
        load_artifact(tmp_path / "a")


def test_no_artifact_or_no_checksums(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"a/_checksums\.json: cannot be read"):
        fingerprint(tmp_path / "a")
    (tmp_path / "a").mkdir()
    for content in ("{", "[]", "{}"):
        (tmp_path / "a" / "_checksums.json").write_text(content)
        with pytest.raises(ArtifactError, match="not a list of checksums"):
            load_artifact(tmp_path / "a")


def test_one_name_for_a_document_and_a_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="curve among documents and records at once"):
        publish_artifact(tmp_path / "a", {}, {"curve": 1}, {"curve": 2})
