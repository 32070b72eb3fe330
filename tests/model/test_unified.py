from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from adacalib.model.checkpoint import ArtifactError, publish_artifact
from adacalib.model.unified import NonFiniteScore, UnifiedModel, load_model, publish_unified
from tests.model.served_models import make_columns, make_model

PREDICTOR_COLUMNS = ("predictor_features", "predictor_category_ids")
AUXILIARY_COLUMNS = ("auxiliary_features", "auxiliary_category_ids")


def publish(folder: Path, model: UnifiedModel) -> Path:
    publish_unified(folder / "unified", model, {"predictor_fingerprint": "v1"}, {"training": {"seconds": 1.5}})
    return folder / "unified"


def reseal(directory: Path, name: str, content: bytes) -> None:
    """Puts other bytes under a name and makes the list of checksums agree: damage that a checksum cannot find."""
    (directory / name).write_bytes(content)
    path = directory / "_checksums.json"
    checksums = json.loads(path.read_text())
    checksums["sha256"][name] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(checksums))


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("predictor", [True, False])
@pytest.mark.parametrize("auxiliary", [True, False])
def test_columns_are_those_of_its_parts(predictor: bool, auxiliary: bool) -> None:
    first = PREDICTOR_COLUMNS if predictor else ("uncalibrated_logit",)
    expected = (*first, "field_value_id", *(AUXILIARY_COLUMNS if auxiliary else ()))
    model = make_model(predictor, auxiliary)
    assert model.columns == expected
    columns = make_columns()
    with torch.no_grad():
        scores = model({name: columns[name] for name in expected})
    assert scores.calibrated_score is not None and scores.calibrated_score.shape == (50,)


@pytest.mark.parametrize("predictor", [True, False])
def test_one_pass_is_predictor_then_calibrator(predictor: bool) -> None:
    model, columns = make_model(predictor), make_columns()
    assert model.calibrator is not None
    with torch.no_grad():
        scores = model(columns)
        logit = columns["uncalibrated_logit"]
        if model.predictor is not None:
            logit = model.predictor(columns["predictor_features"], columns["predictor_category_ids"])
        expected = model.calibrator(columns["field_value_id"].long(), logit, columns)
    assert torch.equal(scores.uncalibrated_logit, logit)
    assert torch.equal(scores.calibrated_logit, expected)
    np.testing.assert_allclose(scores.calibrated_score.numpy(), 1 / (1 + np.exp(-expected.numpy())), rtol=1e-12)


def test_own_logits_are_clipped_to_those_of_1e_7() -> None:
    # log((1 - 1e-7)/1e-7) = 16.118095550958316; infinite ones are clipped too, as scores of exactly 0 and 1 are
    columns = make_columns(4) | {"uncalibrated_logit": torch.tensor([-torch.inf, torch.inf, 16.2, 3.0])}
    with torch.no_grad():
        clipped = make_model(predictor=False)(columns).uncalibrated_logit
    np.testing.assert_allclose(clipped.numpy(), [-16.118096, 16.118096, 16.118096, 3], rtol=1e-7)


@pytest.mark.parametrize("predictor", [True, False])
@pytest.mark.parametrize("auxiliary", [True, False])
def test_what_is_loaded_scores_to_the_last_bit_as_what_was_published(
    tmp_path: Path, predictor: bool, auxiliary: bool
) -> None:
    model, columns = make_model(predictor, auxiliary), make_columns()
    loaded, artifact = load_model(publish(tmp_path, model), "shop")
    with torch.no_grad():
        ours, theirs = model(columns), loaded(columns)
    assert torch.equal(theirs.uncalibrated_logit, ours.uncalibrated_logit)
    assert torch.equal(theirs.calibrated_logit, ours.calibrated_logit)
    assert torch.equal(theirs.calibrated_score, ours.calibrated_score)
    assert artifact.documents["predictor_fingerprint"] == "v1"
    assert artifact.documents["training"] == {"seconds": 1.5}
    assert not loaded.training


def test_records_leave_the_fingerprint_alone_and_parameters_do_not(tmp_path: Path) -> None:
    model = make_model(predictor=False)
    first = publish_unified(tmp_path / "a", model, {}, {"training": {"seconds": 1.5}})
    assert publish_unified(tmp_path / "b", model, {}, {"training": {"seconds": 2.5}}) == first
    assert model.calibrator is not None
    model.calibrator.level_shift_V[1] += 1e-9
    assert publish_unified(tmp_path / "c", model, {}, {}) != first


def test_a_predictor_alone_gives_uncalibrated_scores(tmp_path: Path) -> None:
    predictor = make_model(predictor=True).predictor
    assert predictor is not None
    publish_artifact(tmp_path / "p", {"predictor": predictor.state_dict()}, {"predictor": predictor.hyper_parameters})
    model, _ = load_model(tmp_path / "p", "shop")
    assert model.columns == PREDICTOR_COLUMNS
    with torch.no_grad():
        scores = model(make_columns())
        expected = predictor(*(make_columns()[name] for name in PREDICTOR_COLUMNS))
    assert torch.equal(scores.uncalibrated_logit, expected)
    assert scores.calibrated_logit is None and scores.calibrated_score is None


def test_another_field_is_refused(tmp_path: Path) -> None:
    directory = publish(tmp_path, make_model(predictor=False))
    with pytest.raises(ArtifactError, match="calibrates field shop, asked for town; train it for that field"):
        load_model(directory, "town")


@pytest.mark.parametrize("name", ["calibrator.safetensors", "predictor.safetensors", "unified.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    directory = publish(tmp_path, make_model(predictor=True))
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=rf"{name}: truncated or changed"):
        load_model(directory, "shop")
    (directory / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name}: cannot be read"):
        load_model(directory, "shop")


def test_a_pickle_in_place_of_the_tensors_is_refused_unread(tmp_path: Path) -> None:
    directory = publish(tmp_path, make_model(predictor=False))
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    reseal(directory, "calibrator.safetensors", trap)
    with pytest.raises((ArtifactError, SafetensorError), match=r"calibrator\.safetensors|header"):
        load_model(directory, "shop")
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists()  # the trap works


@pytest.mark.parametrize(
    "document",
    [
        {"field": "shop"},  # no calibrator
        {"field": "shop", "calibrator": {"n_values": 4, "shape": [4], "auxiliary": None}},
        {"field": "shop", "calibrator": {"n_values": 4, "shape": [4, 9], "auxiliary": None}},
        [],
    ],
)
def test_a_document_that_does_not_fit_its_tensors_is_refused(tmp_path: Path, document: object) -> None:
    directory = publish(tmp_path, make_model(predictor=False))
    reseal(directory, "unified.json", json.dumps(document).encode())
    with pytest.raises(ArtifactError, match=r"no predictor and no unified checkpoint .*train it again"):
        load_model(directory, "shop")


def test_something_else_is_refused(tmp_path: Path) -> None:
    publish_artifact(tmp_path / "x", {"t": {"w": torch.ones(1)}}, {"other": 1})
    with pytest.raises(ArtifactError, match="no predictor and no unified checkpoint"):
        load_model(tmp_path / "x", "shop")
    with pytest.raises(ArtifactError, match="cannot be read"):
        load_model(tmp_path / "nothing", "shop")


def test_a_logit_that_is_not_finite_is_refused() -> None:
    model, columns = make_model(predictor=True), make_columns()
    columns["predictor_features"][3, 1] = torch.inf
    with pytest.raises(NonFiniteScore, match="the predictor gave a logit that is not finite"):
        model(columns)
    own = make_columns()
    own["uncalibrated_logit"][0] = torch.nan
    with pytest.raises(NonFiniteScore, match="an own logit is NaN"):
        make_model(predictor=False)(own)
