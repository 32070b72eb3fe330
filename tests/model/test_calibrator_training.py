"""`train_calibrator` end to end, in this process with one rank, on tables written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adacalib.config import RunConfig
from adacalib.manifest import MixedTables, TableMissing
from adacalib.model.calibrator_training import OtherBins, train_calibrator
from adacalib.model.checkpoint import publish_artifact
from adacalib.model.predictor import Predictor
from adacalib.model.row_files import StreamError
from adacalib.model.unified import load_model
from tests.model.calibrator_world import Rows, draw_rows, make_config, write_world

PAPER = {"calibrator": {"mode": "paper"}, "bins": {"n_bins_candidates": [3, 6]}}
NO_NETWORK = {"calibrator": {"auxiliary": {"enabled": False}}}


def train(folder: Path, changes: dict[str, Any] | None = None, rows: Rows | None = None) -> tuple[RunConfig, Any]:
    """Writes the world, trains, and gives back the configuration and what training.json says."""
    config = make_config(folder, changes)
    write_world(config, draw_rows() if rows is None else rows)
    train_calibrator(config)
    return config, load_model(config.run_dir / "unified", "shop")[1].documents["training"]


def score(config: RunConfig, rows: Rows) -> np.ndarray:
    """Calibrated log-odds of rows by the published checkpoint."""
    model, _ = load_model(config.run_dir / "unified", "shop")
    columns = {name: torch.from_numpy(values) for name, values in rows.items()}
    with torch.no_grad():
        return model(columns).calibrated_logit.numpy()


def log_loss(rows: Rows, logit: np.ndarray) -> float:
    losses = np.logaddexp(0, logit) - rows["label"] * logit
    return float(np.average(losses, weights=rows["weight"]))


def field_rce(rows: Rows, logit: np.ndarray) -> float:
    """Eq. 3, written out."""
    error = total = 0.0
    for value in np.unique(rows["field_value_id"]):
        own = rows["field_value_id"] == value
        w, y, p = rows["weight"][own], rows["label"][own], 1 / (1 + np.exp(-logit[own]))
        error += w.sum() * abs(np.sum(w * p) / np.sum(w * y) - 1)
        total += w.sum()
    return error / total


FRESH = draw_rows(6000, seed=99)


def test_robust_mode_from_tables_to_checkpoint(tmp_path: Path) -> None:
    config, told = train(tmp_path / "with")
    plain, _ = train(tmp_path / "without", NO_NETWORK)
    assert (told["mode"], told["candidates"], told["field_part"]) == ("robust", [20], "robust")
    raw, without, with_network = FRESH["uncalibrated_logit"], score(plain, FRESH), score(config, FRESH)
    # the field part repairs the field values, the network what the features say
    assert field_rce(FRESH, without) < 0.4 * field_rce(FRESH, raw)
    assert field_rce(FRESH, with_network) < 0.4 * field_rce(FRESH, raw)
    assert log_loss(FRESH, with_network) < log_loss(FRESH, without) - 0.05 < log_loss(FRESH, raw) - 0.1
    assert json.dumps(told, allow_nan=False)


def test_paper_mode_from_tables_to_checkpoint(tmp_path: Path) -> None:
    changes = PAPER | {"calibrator": {"mode": "paper", "epochs": 6, "auxiliary": {"learning_rate": 0.02}}}
    config, told = train(tmp_path / "with", changes)
    assert (told["mode"], told["candidates"], told["chosen_epoch"]) == ("paper", [3, 6], 6)
    assert len(told["chosen_candidates"]) == 7 and set(told["chosen_candidates"]) <= {3, 6}
    curve = told["loss_curves"]["paper"]
    assert [epoch["epoch"] for epoch in curve] == list(range(1, 7))
    assert {epoch["rows"] for epoch in curve} == {4000}  # the paper holds no rows out
    assert curve[-1]["training_loss"] < curve[0]["training_loss"] - 0.1
    raw, calibrated = FRESH["uncalibrated_logit"], score(config, FRESH)
    assert log_loss(FRESH, calibrated) < log_loss(FRESH, raw) - 0.05
    # the network's part of it
    changes["calibrator"]["auxiliary"]["enabled"] = False
    plain, _ = train(tmp_path / "without", changes)
    assert log_loss(FRESH, calibrated) < log_loss(FRESH, score(plain, FRESH)) - 0.05


@pytest.mark.parametrize("changes", [{}, PAPER], ids=["robust", "paper"])
def test_same_tables_and_seed_same_checkpoint(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"calibrator": {"epochs": 1, "auxiliary": {"epochs": 1}} | changes.get("calibrator", {})}
    fingerprints = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        config, _ = train(tmp_path / name, changes | short | {"seed": seed}, draw_rows(1500))
        fingerprints.append(load_model(config.run_dir / "unified", "shop")[1].fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_candidates_and_residual_are_refined_on_cells(tmp_path: Path) -> None:
    changes = NO_NETWORK | {"bins": {"n_bins_candidates": [2, 10]}}
    changes["calibrator"] = {**NO_NETWORK["calibrator"], "residual_network": True}
    config, told = train(tmp_path, changes)
    assert told["refinement_loss_after"] <= told["refinement_loss_before"]
    assert set(told["chosen_candidates"]) <= {2, 10} and len(told["chosen_candidates"]) == 7
    assert field_rce(FRESH, score(config, FRESH)) < 0.4 * field_rce(FRESH, FRESH["uncalibrated_logit"])
    # monotone for every value
    line = np.linspace(-8, 8, 200).astype(np.float32)
    for value in range(7):
        rows = {"field_value_id": np.full(200, value), "uncalibrated_logit": line}
        assert np.all(np.diff(score(config, rows)) > 0)


def test_twenty_rows_are_enough_to_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = draw_rows(20, seed=2, hold_out_share=0.0)
    assert set(rows["fold"]) == {0, 1, 2, 3}
    config, told = train(tmp_path, rows=rows)
    assert "no held-out rows" in told["auxiliary_note"]
    assert "left untrained" in caplog.text
    logit = score(config, rows)
    assert np.all(np.isfinite(logit))
    assert log_loss(rows, logit) < log_loss(rows, rows["uncalibrated_logit"]) + 0.1


def test_unseen_values_are_served_by_id_0(tmp_path: Path) -> None:
    config, _ = train(tmp_path, NO_NETWORK)
    unseen = {"field_value_id": np.zeros(5, np.int32), "uncalibrated_logit": np.float32([-3, -1, 0, 1, 3])}
    logit = score(config, unseen)
    known = [score(config, unseen | {"field_value_id": np.full(5, z, np.int32)}) for z in range(1, 7)]
    # the curve of all values: between the extremes of the known ones
    assert np.all(logit > np.min(known, axis=0)) and np.all(logit < np.max(known, axis=0))
    assert load_model(config.run_dir / "unified", "shop")[0].calibrator.level_shift_V[0].abs() < 0.2


def write_fingerprint(config: RunConfig, table: str, fingerprint: str) -> None:
    path = config.run_dir / "tables" / table / "_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"predictor_fingerprint": fingerprint}))


@pytest.mark.parametrize("table", ["logit_cells", "bin_statistics", "training_rows"])
def test_tables_of_different_predictors_are_refused(tmp_path: Path, table: str) -> None:
    config = make_config(tmp_path)
    write_world(config, draw_rows(200))
    write_fingerprint(config, table, "v2")
    with pytest.raises(MixedTables, match=rf"{table} from v2.*run from score_samples again"):
        train_calibrator(config)
    assert not (config.run_dir / "unified").exists()


def test_a_predictor_trained_since_is_refused_and_its_own_goes_into_the_checkpoint(tmp_path: Path) -> None:
    changes = {"input": {"score": None}, "calibrator": {"auxiliary": {"epochs": 1}}}
    config = make_config(tmp_path, changes)
    write_world(config, draw_rows(1000))
    predictor = Predictor(2, [3], hidden=(4, 4, 4))
    fingerprint = publish_artifact(
        config.run_dir / "predictor", {"predictor": predictor.state_dict()}, {"predictor": predictor.hyper_parameters}
    )
    with pytest.raises(MixedTables, match=f"training_rows from v1, predictor from {fingerprint}"):
        train_calibrator(config)
    for table in ("logit_cells", "bin_statistics", "training_rows"):
        write_fingerprint(config, table, fingerprint)
    train_calibrator(config)
    model, artifact = load_model(config.run_dir / "unified", "shop")
    assert model.predictor is not None
    for name, tensor in predictor.state_dict().items():
        assert torch.equal(model.predictor.state_dict()[name], tensor)
    assert artifact.documents["origin"]["predictor_fingerprint"] == fingerprint


def test_bins_of_another_configuration_are_refused(tmp_path: Path) -> None:
    write_world(make_config(tmp_path), draw_rows(200))
    with pytest.raises(OtherBins, match=r"made for \[20\] bins, .* asks for \[3, 6\]; run from compute_bin_statistics"):
        train_calibrator(make_config(tmp_path, PAPER))


def test_a_lost_file_or_row_is_noticed(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    write_world(config, draw_rows(200))
    (config.run_dir / "tables" / "logit_cells" / "part-0.parquet").unlink()
    with pytest.raises(StreamError, match=r"logit_cells: 0 rows in its files, 203 in _manifest\.json"):
        train_calibrator(config)
    (config.run_dir / "tables" / "samples" / "_manifest.json").unlink()
    with pytest.raises(TableMissing, match="table samples is not there; run `adacalib prepare_samples`"):
        train_calibrator(config)
