"""The predictor, its features, and its training through the job's entry point."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from adacalib.config import RunConfig
from adacalib.manifest import TableMissing
from adacalib.model.checkpoint import ArtifactError, fingerprint, load_artifact, publish_artifact
from adacalib.model.predictor import Predictor, build_predictor, compute_log_loss, load_predictor
from adacalib.model.row_files import StreamError
from jobs import train_predictor
from tests.model.toy_training import toy_config, write_config


def predict(predictor: Predictor, numbers: torch.Tensor | None, ids: torch.Tensor | None) -> torch.Tensor:
    with torch.no_grad():
        return predictor(numbers, ids)


def forward_oracle(state: dict[str, Any], numbers: Any, ids: Any) -> Any:
    """Four layers in NumPy."""
    weights = {name: tensor.double().numpy() for name, tensor in state.items()}
    embedded = [weights[f"encoder.embeddings.{column}.weight"][ids[:, column]] for column in range(ids.shape[1])]
    activation = np.concatenate([numbers, *embedded], axis=1)
    for layer in range(3):
        name = f"hidden_layers.{layer}"
        activation = np.maximum(activation @ weights[f"{name}.weight"].T + weights[f"{name}.bias"], 0)
    return (activation @ weights["output_layer.weight"].T + weights["output_layer.bias"])[:, 0]


def test_the_predictor_is_four_fully_connected_layers() -> None:
    torch.manual_seed(0)
    predictor = Predictor(2, [3, 4], hidden=(8, 6, 5), embedding_width=3)
    rng = np.random.default_rng(0)
    numbers, ids = rng.normal(size=(7, 2)), np.stack([rng.integers(3, size=7), rng.integers(4, size=7)], axis=1)
    logits = predict(predictor, torch.from_numpy(numbers), torch.from_numpy(ids))
    assert not logits.requires_grad
    np.testing.assert_allclose(logits, forward_oracle(predictor.state_dict(), numbers, ids), rtol=1e-4, atol=1e-6)


def test_the_output_starts_at_the_mean_label() -> None:
    # logit(0.2) = ln(0.2 / 0.8) = -1.386294
    assert Predictor(1, [], mean_label=0.2).output_layer.bias.item() == pytest.approx(-1.386294, abs=1e-6)
    for mean_label in (0.0, 1.0):
        with pytest.raises(ValueError, match="needs rows of both labels"):
            Predictor(1, [], mean_label=mean_label)
    with pytest.raises(ValueError, match="the predictor has no features; name some"):
        Predictor(0, [])


def test_log_loss_by_hand() -> None:
    # Logit 0 for all: every row's loss is ln 2; weights 1 and 3 give (4 ln 2, 4).
    predictor = Predictor(1, [])
    torch.nn.init.zeros_(predictor.output_layer.weight)
    torch.nn.init.zeros_(predictor.output_layer.bias)
    columns = {
        "predictor_features": torch.ones(2, 1),
        "label": torch.tensor([0, 1], dtype=torch.uint8),
        "weight": torch.tensor([1.0, 3.0], dtype=torch.float64),
    }
    loss, weight = compute_log_loss(predictor, columns)
    assert loss.item() == pytest.approx(4 * math.log(2))
    assert weight.item() == 4


def test_a_predictor_comes_back_bit_equal(tmp_path: Path) -> None:
    predictor = Predictor(2, [3], hidden=(4, 4, 4), mean_label=0.1)
    publish_artifact(tmp_path / "p", {"predictor": predictor.state_dict()}, {"predictor": predictor.hyper_parameters})
    loaded = load_predictor(tmp_path / "p")
    assert not loaded.training
    numbers, ids = torch.randn(50, 2), torch.randint(3, (50, 1))
    assert torch.equal(predict(loaded, numbers, ids), predict(predictor, numbers, ids))
    again = build_predictor(predictor.hyper_parameters, predictor.state_dict())
    assert torch.equal(predict(again, numbers, ids), predict(predictor, numbers, ids))


def test_an_artifact_of_something_else(tmp_path: Path) -> None:
    publish_artifact(tmp_path / "p", {"other": {"w": torch.ones(1)}}, {"other": 1})
    with pytest.raises(ArtifactError, match=r"not a predictor .*run train_predictor again"):
        load_predictor(tmp_path / "p")


def write_samples(config: RunConfig, n_train: int = 1500, labels: str = "both") -> None:
    """Samples as prepare_samples leaves them; the label follows the number and the category."""
    table = config.run_dir / "tables" / "samples"
    rng = np.random.default_rng(1)
    for split, n_rows in (("train", n_train), ("dev", 300), ("test", 10)):
        numbers = rng.normal(size=(n_rows, 1)).astype(np.float32)
        ids = rng.integers(0, 3, (n_rows, 1)).astype(np.int32)
        rate = 1 / (1 + np.exp(-(1.5 * numbers[:, 0] + 2.0 * (ids[:, 0] == 2) - 1.0)))
        label = (rng.random(n_rows) < rate) if labels == "both" else np.zeros(n_rows)
        columns = {
            "sample_id": pa.array([f"{split}{i}" for i in range(n_rows)]),
            "label": pa.array(label.astype(np.int8)),
            "weight": pa.array(np.ones(n_rows)),
            "predictor_features": pa.array(list(numbers), pa.list_(pa.float32())),
            "predictor_category_ids": pa.array(list(ids), pa.list_(pa.int32())),
        }
        folder = table / f"split={split}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=400)
    origin = {"input_fingerprint": "toy", "generation": config.describe_generation("toy")}
    manifest = {"rows": n_train + 310, **origin, "n_predictor_features": 1, "predictor_category_counts": [3]}
    (table / "_manifest.json").write_text(json.dumps(manifest))


def train_once(folder: Path) -> RunConfig:
    config = toy_config(folder)
    write_samples(config)
    train_predictor.main(["--config", str(write_config(config, folder / "config.json"))])
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return train_once(tmp_path_factory.mktemp("trained"))


def test_the_job_publishes_a_predictor_that_has_learned(trained: RunConfig) -> None:
    curve = load_artifact(trained.run_dir / "predictor").documents["loss_curve"]
    assert [entry["epoch"] for entry in curve] == [0, 1, 2]
    assert [entry["rows"] for entry in curve] == [0, 1500, 1500]
    assert curve[2]["held_out_loss"] < curve[1]["held_out_loss"] < curve[0]["held_out_loss"] - 0.02
    predictor = load_predictor(trained.run_dir / "predictor")
    low, high = predict(predictor, torch.tensor([[-1.0], [1.0]]), torch.tensor([[0], [2]])).tolist()
    assert low < high - 1
    assert predictor.hyper_parameters == {
        "n_numbers": 1,
        "category_counts": [3],
        "hidden": [8, 4, 4],
        "embedding_width": 8,
    }


def test_the_same_samples_give_the_same_predictor(trained: RunConfig, tmp_path: Path) -> None:
    again = train_once(tmp_path)
    assert fingerprint(again.run_dir / "predictor") == fingerprint(trained.run_dir / "predictor")


def test_samples_the_predictor_cannot_learn_from(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    path = str(write_config(config, tmp_path / "config.json"))
    with pytest.raises(TableMissing, match="table samples is not there; run `adacalib prepare_samples`"):
        train_predictor.main(["--config", path])
    write_samples(config, labels="none")
    with pytest.raises(ValueError, match=r"split=train: labels add up to 0 at weight 1500.*rows of both labels"):
        train_predictor.main(["--config", path])
    origin = {"input_fingerprint": "toy", "generation": config.describe_generation("toy")}
    (config.run_dir / "tables" / "samples" / "_manifest.json").write_text(json.dumps({"rows": 1810, **origin}))
    with pytest.raises(StreamError, match="does not say how many predictor features"):
        train_predictor.main(["--config", path])


def test_overrides_reach_the_job(trained: RunConfig) -> None:
    path = trained.run_dir.parent.parent / "config.json"
    with pytest.raises(ValueError, match=r"predictor\.epochs"):
        train_predictor.main(["--config", str(path), "--set", "predictor.epochs=0"])
