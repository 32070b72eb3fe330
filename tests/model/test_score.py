from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.model import score
from adacalib.model.calibrator import Calibrator
from adacalib.model.checkpoint import ArtifactError, publish_artifact
from adacalib.model.score import ScoringError, build_comparer, build_scorer, score_batch
from adacalib.model.unified import UnifiedModel, publish_unified
from tests.model.served_models import (
    N_VALUES,
    make_auxiliary,
    make_calibrator,
    make_columns,
    make_functions,
    make_model,
)

RESULT = ("row", "uncalibrated_logit", "calibrated_logit", "calibrated_score")
LISTS = ("predictor_features", "predictor_category_ids", "auxiliary_features", "auxiliary_category_ids")


@pytest.fixture(autouse=True)
def forget_models_and_threads() -> Iterator[None]:
    """A scorer keeps its model, and one thread, for the rest of the process."""
    threads = torch.get_num_threads()
    yield
    score._load_once.cache_clear()
    torch.set_num_threads(threads)


def make_batch(n_rows: int = 50) -> pa.RecordBatch:
    """The columns of samples as Spark hands them over: lists, narrow integers, and columns that no model reads."""
    columns = {name: tensor.numpy() for name, tensor in make_columns(n_rows).items()}
    arrays = {"row": pa.array([f"r{i}" for i in range(n_rows)])}
    for name, values in columns.items():
        if name in LISTS:
            kind = pa.float32() if values.dtype == np.float32 else pa.int32()
            arrays[name] = pa.array(list(values), pa.list_(kind))
        else:
            arrays["field_value_id_shop" if name == "field_value_id" else name] = pa.array(values)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def publish(folder: Path, model: UnifiedModel) -> Path:
    """The model as folder/unified."""
    publish_unified(folder / "unified", model, {}, {})
    return folder / "unified"


@pytest.mark.parametrize("predictor", [True, False])
@pytest.mark.parametrize("auxiliary", [True, False])
def test_equals_the_forward_pass(predictor: bool, auxiliary: bool) -> None:
    model = make_model(predictor, auxiliary)
    scored = score_batch(model, make_batch(), RESULT)
    with torch.no_grad():
        expected = model(make_columns())
    assert tuple(scored.schema.names) == RESULT
    assert scored.schema.types == [pa.string(), pa.float32(), pa.float64(), pa.float64()]
    for name in RESULT[1:]:
        np.testing.assert_array_equal(scored.column(name).to_numpy(), getattr(expected, name).numpy())
    assert scored.column("row").to_pylist() == [f"r{i}" for i in range(50)]


def test_by_hand() -> None:
    # id 2 at 0: .8 (tests/model/test_calibrator.py); σ(.8) = .68997
    batch = pa.RecordBatch.from_pydict(
        {"uncalibrated_logit": pa.array([0.0], pa.float32()), "field_value_id_shop": pa.array([2], pa.int32())}
    )
    scored = score_batch(make_model(predictor=False, auxiliary=False), batch, RESULT[1:])
    assert scored.to_pylist()[0]["calibrated_logit"] == pytest.approx(0.8)
    assert scored.to_pylist()[0]["calibrated_score"] == pytest.approx(0.68997, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 49))
def test_batches_of_any_size_give_the_same_scores(cut: int) -> None:
    # slices share their buffers with the whole batch, so offsets must be respected
    model, batch = make_model(predictor=False), make_batch()
    whole = score_batch(model, batch, RESULT)
    parts = pa.Table.from_batches([score_batch(model, p, RESULT) for p in (batch.slice(0, cut), batch.slice(cut))])
    assert parts["row"].to_pylist() == whole.column("row").to_pylist()
    for name in RESULT[1:]:
        np.testing.assert_allclose(parts[name].to_numpy(), whole.column(name).to_numpy(), rtol=1e-6, atol=1e-6)


def test_a_scorer_loads_the_checkpoint_and_passes_over_empty_batches(tmp_path: Path) -> None:
    model = make_model(predictor=True)
    directory = publish(tmp_path, model)
    scorer, artifact = build_scorer(directory, "shop", RESULT)
    batch = make_batch()
    found = list(scorer(iter([batch.slice(0, 0), batch])))
    assert len(found) == 1
    assert found[0].equals(score_batch(model, batch, RESULT))
    assert artifact.documents["unified"]["field"] == "shop"


def test_a_checkpoint_replaced_meanwhile_is_noticed(tmp_path: Path) -> None:
    scorer, _ = build_scorer(publish(tmp_path, make_model(predictor=True)), "shop", RESULT)
    publish(tmp_path, make_model(predictor=False))
    with pytest.raises(ScoringError, match="replaced while its scores were computed; run the stage again"):
        list(scorer([make_batch()]))


@pytest.mark.parametrize("column", ["field_value_id_shop", "auxiliary_features", "predictor_category_ids", "row"])
def test_a_missing_column_is_named(column: str) -> None:
    batch = make_batch()
    without = batch.select([name for name in batch.schema.names if name != column])
    with pytest.raises(ScoringError, match=rf"column {column} is missing; the batch has .*uncalibrated_logit"):
        score_batch(make_model(predictor=True), without, RESULT)


def test_lists_of_different_lengths_are_refused() -> None:
    # 1 + 3 numbers in 2 rows would make 2 × 2 without a word
    batch = make_batch(2)
    ragged = pa.array([[1.0], [1.0, 2.0, 3.0]], pa.list_(pa.float32()))
    arrays = [ragged if name == "auxiliary_features" else batch.column(name) for name in batch.schema.names]
    with pytest.raises(ScoringError, match="column auxiliary_features: lists of 1 to 3 numbers"):
        score_batch(make_model(predictor=False), pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), RESULT)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_ids_that_the_calibrator_does_not_know_are_refused(wrong: int) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "uncalibrated_logit": pa.array([0.0, 0.0], pa.float32()),
            "field_value_id_shop": pa.array([0, wrong], pa.int32()),
        }
    )
    with pytest.raises(
        ScoringError, match=r"field value ids of shop from .* knows 0 \(unseen\) to 3.*train_calibrator"
    ):
        score_batch(make_model(predictor=False, auxiliary=False), batch, RESULT[1:])


def test_parents_that_the_calibrator_does_not_know_are_refused() -> None:
    calibrator = Calibrator(make_functions(), np.zeros(N_VALUES), 0.0, None, np.array([0.0, 0.4]))
    model = UnifiedModel(None, calibrator, "shop").eval()
    columns = {"uncalibrated_logit": pa.array([0.0], pa.float32()), "field_value_id_shop": pa.array([0], pa.int32())}
    with pytest.raises(ScoringError, match="column parent_id is missing"):
        score_batch(model, pa.RecordBatch.from_pydict(columns), RESULT[1:])
    batch = pa.RecordBatch.from_pydict(columns | {"parent_id": pa.array([2], pa.int32())})
    with pytest.raises(
        ScoringError, match=r"parent ids from 2 to 2, but the checkpoint knows 0 \(none\) to 1: field_value_parents is"
    ):
        score_batch(model, batch, RESULT[1:])


def test_a_scorer_needs_a_checkpoint_of_its_field(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="asked for town"):
        build_scorer(publish(tmp_path, make_model(predictor=False)), "town", RESULT)


def test_checkpoints_are_compared_on_one_logit_by_hand(tmp_path: Path) -> None:
    # id 2 at logit 0: .8 by the functions of both (test_by_hand), σ(.8) = .68997, whatever predictor is inside
    directories = {
        "p_with": publish(tmp_path / "with", make_model(predictor=True, auxiliary=False)),
        "p_own": publish(tmp_path / "own", make_model(predictor=False, auxiliary=False)),
    }
    batch = pa.RecordBatch.from_pydict(
        {
            "row": ["r"],
            "uncalibrated_logit": pa.array([0.0], pa.float32()),
            "field_value_id_shop": pa.array([2], pa.int32()),
        }
    )
    (found,) = build_comparer(directories, "shop", ["p_own", "row", "p_with"])([batch])
    assert found.schema.names == ["p_own", "row", "p_with"]
    assert found.schema.types == [pa.float64(), pa.string(), pa.float64()]
    by_hand = pytest.approx(0.68997, abs=1e-5)
    assert found.to_pylist() == [{"p_own": by_hand, "row": "r", "p_with": by_hand}]


def test_every_checkpoint_is_asked_about_the_batches_own_logit(tmp_path: Path) -> None:
    networks = {"a": make_auxiliary(), "b": None, "c": make_auxiliary(embedding=False, takes_logit=False)}
    directories = {
        name: publish(
            tmp_path / name, UnifiedModel(make_model(predictor=True).predictor, make_calibrator(network), "shop")
        )
        for name, network in networks.items()
    }
    compare = build_comparer(directories, "shop", ["uncalibrated_logit", *networks])
    batch = make_batch()
    found = pa.Table.from_batches(compare(iter([batch.slice(0, 0), batch.slice(0, 7), batch.slice(7)])))
    columns = make_columns()
    np.testing.assert_array_equal(found["uncalibrated_logit"].to_numpy(), columns["uncalibrated_logit"].numpy())
    for name, network in networks.items():
        ids, logit = columns["field_value_id"].long(), columns["uncalibrated_logit"]
        with torch.no_grad():
            expected = torch.sigmoid(make_calibrator(network)(ids, logit, columns)).numpy()
        np.testing.assert_allclose(found[name].to_numpy(), expected, rtol=1e-6)
    assert len({found[name].to_pylist()[3] for name in networks}) == 3


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    good = publish(tmp_path / "good", make_model(predictor=True))
    predictor = make_model(predictor=True).predictor
    assert predictor is not None
    bare = tmp_path / "bare" / "predictor"
    publish_artifact(bare, {"predictor": predictor.state_dict()}, {"predictor": predictor.hyper_parameters})
    with pytest.raises(ArtifactError, match=r"bare/predictor: no calibrator inside; run train_calibrator"):
        build_comparer({"good": good, "bare": bare}, "shop", ["good"])
    with pytest.raises(ArtifactError, match="asked for town"):
        build_comparer({"good": good}, "town", ["good"])
    with pytest.raises(ArtifactError, match="nowhere"):
        build_comparer({"good": good, "gone": tmp_path / "nowhere"}, "shop", ["good"])
    compare = build_comparer({"good": good}, "shop", ["good", "key"])
    with pytest.raises(ScoringError, match=r"column key is missing; the batch has .*uncalibrated_logit"):
        list(compare([make_batch()]))
    publish(tmp_path / "good", make_model(predictor=False))
    score._load_once.cache_clear()  # as in a worker that starts later
    with pytest.raises(ScoringError, match="replaced while its scores were computed"):
        list(compare([make_batch()]))
