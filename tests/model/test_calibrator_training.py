"""`train_calibrator` end to end, in this process with one rank, on tables written here."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adacalib.baselines.isotonic_field_part import build_isotonic_functions
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.cells.functions import interpolate
from adacalib.config import RunConfig
from adacalib.manifest import MixedTables, TableMissing
from adacalib.model import cell_passes
from adacalib.model.calibrator_training import OtherBins, train_calibrator
from adacalib.model.checkpoint import publish_artifact
from adacalib.model.predictor import Predictor
from adacalib.model.row_files import StreamError, open_rows
from adacalib.model.unified import load_model
from tests.model.calibrator_world import Rows, cell_rows, cells_of, draw_rows, make_config, write_world

PAPER = {"calibrator": {"mode": "paper"}, "bins": {"n_bins_candidates": [3, 6]}}
NEUCALIB = {"calibrator": {"mode": "neucalib"}}
ISOTONIC = {"calibrator": {"mode": "isotonic_offset"}}
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


@pytest.mark.parametrize(("by", "shrinks"), [("date", True), ("hash", False)])
def test_dated_scores_shrink_where_the_test_is_of_later_days(tmp_path: Path, by: str, shrinks: bool) -> None:
    # on the last three of ten days every other label is dealt anew
    rows, rng = draw_rows(6000), np.random.default_rng(4)
    days = rng.integers(0, 10, 6000).astype(np.int32)
    anew = (days >= 7) & (rng.random(6000) < 0.5)
    rows["label"] = np.where(anew, rng.random(6000) < rows["label"].mean(), rows["label"]).astype(np.int8)
    config = make_config(tmp_path, NO_NETWORK | {"input": {"date": "day"}, "split": {"by": by}})
    write_world(config, rows, days=days)
    train_calibrator(config)
    model, artifact = load_model(config.run_dir / "unified", "shop")
    told, slope = artifact.documents["training"], float(model.calibrator.slope)
    assert slope == told["forward_slope"]
    if shrinks:
        assert slope < 0.8 and told["forward_slope_measured"] < slope
    else:
        assert slope == 1.0 and told["forward_slope_measured"] is None


def test_paper_mode_from_tables_to_checkpoint(tmp_path: Path) -> None:
    changes = PAPER | {"calibrator": {"mode": "paper", "auxiliary": {"epochs": 6, "learning_rate": 0.02}}}
    config, told = train(tmp_path / "with", changes)
    assert (told["mode"], told["candidates"], told["trained_on_all_rows"]) == ("paper", [3, 6], False)
    assert len(told["chosen_candidates"]) == 7 and set(told["chosen_candidates"]) <= {3, 6}
    curve = told["loss_curves"]["paper"]
    assert [epoch["epoch"] for epoch in curve] == list(range(len(curve)))
    # as for AdaCalib's own network, held-out rows choose the epoch
    held_out = [epoch["held_out_loss"] for epoch in curve]
    assert told["chosen_epoch"] == int(np.argmin(held_out)) > 0
    assert {epoch["rows"] for epoch in curve[1:]} == {int(np.sum(draw_rows()["hold_out"] == 0))}
    raw, calibrated = FRESH["uncalibrated_logit"], score(config, FRESH)
    assert log_loss(FRESH, calibrated) < log_loss(FRESH, raw) - 0.05
    # the network's part of it
    changes["calibrator"] = {"mode": "paper", "epochs": 6, "auxiliary": {"enabled": False}}
    plain, _ = train(tmp_path / "without", changes)
    assert log_loss(FRESH, calibrated) < log_loss(FRESH, score(plain, FRESH)) - 0.05


def test_paper_modes_functions_rise_where_bins_are_sparse(tmp_path: Path) -> None:
    # six values share 800 samples, so that posteriors of ten bins fall often: with a penalty of weight 1 the functions
    # rise by less than .4 between -2 and 2 and gain .006 on a constant; by default by .5 to 4, and gain .066
    rows = draw_rows(800, hold_out_share=0.0)
    changes = {"calibrator": {"mode": "paper", "auxiliary": {"enabled": False}}, "bins": {"n_bins_candidates": [10]}}
    config = make_config(tmp_path, changes)
    write_world(config, rows, rows_of_cells=True)
    train_calibrator(config)
    calibrated = score(config, FRESH)
    constant = np.full(len(calibrated), np.log(rows["label"].mean() / (1 - rows["label"].mean())))
    assert log_loss(FRESH, calibrated) < log_loss(FRESH, constant) - 0.04
    low, high = (
        score(config, FRESH | {"uncalibrated_logit": np.full_like(FRESH["uncalibrated_logit"], s)}) for s in (-2, 2)
    )
    assert np.min(high - low) > 0.4


@pytest.mark.parametrize("changes", [{}, PAPER], ids=["robust", "paper"])
def test_same_tables_and_seed_same_checkpoint(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"calibrator": {"epochs": 1, "auxiliary": {"epochs": 1}} | changes.get("calibrator", {})}
    fingerprints = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        config, _ = train(tmp_path / name, changes | short | {"seed": seed}, draw_rows(1500))
        fingerprints.append(load_model(config.run_dir / "unified", "shop")[1].fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_another_seed_of_the_training_alone_takes_the_same_tables(tmp_path: Path) -> None:
    rows, short = draw_rows(1500), PAPER | {"calibrator": {"mode": "paper", "epochs": 1, "auxiliary": {"epochs": 1}}}
    base, _ = train(tmp_path, short, rows)
    fingerprints = [load_model(base.run_dir / "unified", "shop")[1].fingerprint]
    for seed in (base.seed, base.seed + 1):
        calibrator = short["calibrator"] | {"seed": seed}
        changes = short | {"calibrator": calibrator, "name": f"of_{seed}", "inputs_from": str(base.run_dir)}
        own = make_config(tmp_path, changes)
        train_calibrator(own)
        fingerprints.append(load_model(own.run_dir / "unified", "shop")[1].fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_robust_mode_takes_the_largest_number_of_bins(tmp_path: Path) -> None:
    both, told = train(tmp_path / "both", NO_NETWORK | {"bins": {"n_bins_candidates": [2, 10]}})
    alone, _ = train(tmp_path / "alone", NO_NETWORK | {"bins": {"n_bins_candidates": [10]}})
    np.testing.assert_array_equal(score(both, FRESH), score(alone, FRESH))
    assert "chosen_candidates" not in told
    # monotone for every value
    line = np.linspace(-8, 8, 200).astype(np.float32)
    for value in range(7):
        rows = {"field_value_id": np.full(200, value), "uncalibrated_logit": line}
        assert np.all(np.diff(score(both, rows)) > 0)


def test_twenty_rows_are_enough_to_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = draw_rows(20, seed=2, hold_out_share=0.0)
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


def without_network(changes: dict[str, Any]) -> dict[str, Any]:
    return {"calibrator": changes["calibrator"] | NO_NETWORK["calibrator"]}


def test_neucalib_from_tables_to_checkpoint(tmp_path: Path) -> None:
    config, told = train(tmp_path / "with", NEUCALIB)
    plain, _ = train(tmp_path / "without", without_network(NEUCALIB))
    assert (told["mode"], told["candidates"]) == ("neucalib", [20])
    curve = told["loss_curves"]["neucalib"]
    held_out = int((draw_rows()["hold_out"] == 1).sum())
    # with a network its epochs count, as for AdaCalib's
    assert [epoch["rows"] for epoch in curve] == [0, *[4000 - held_out] * config.calibrator.auxiliary.epochs]
    raw, without, with_network = FRESH["uncalibrated_logit"], score(plain, FRESH), score(config, FRESH)
    assert log_loss(FRESH, with_network) < log_loss(FRESH, without) - 0.05 < log_loss(FRESH, raw) - 0.05
    # one function for all: nothing but the network knows the field values
    assert field_rce(FRESH, with_network) < 0.5 * field_rce(FRESH, without)
    assert json.dumps(told, allow_nan=False)


def test_isotonic_offset_from_tables_to_checkpoint(tmp_path: Path) -> None:
    config, told = train(tmp_path / "with", ISOTONIC)
    plain, told_plain = train(tmp_path / "without", without_network(ISOTONIC))
    assert (told["mode"], told["field_part"], told["candidates"]) == ("isotonic_offset", "robust", [20])
    fit = fit_isotonic_offset(cells_of(draw_rows()))
    for said in (told, told_plain):
        assert said["tau_level"] == pytest.approx(fit.tau, rel=1e-9)
    # without a network: its functions, levels once more from the same cells. With one: the same functions below it
    functions = build_isotonic_functions(fit)
    logit = interpolate(functions, FRESH["field_value_id"].astype(int), FRESH["uncalibrated_logit"].astype(float))
    for name, own in (("plain", plain), ("network", config)):
        calibrator = load_model(own.run_dir / "unified", "shop")[0].calibrator
        np.testing.assert_allclose(calibrator.table.knots_RJ.numpy(), functions.knots_RJ, atol=1e-9)
        if name == "plain":
            shift = calibrator.level_shift_V.numpy()[FRESH["field_value_id"]]
            np.testing.assert_allclose(score(own, FRESH), logit + shift, atol=1e-9)
    without, with_network = score(plain, FRESH), score(config, FRESH)
    assert field_rce(FRESH, without) < 0.4 * field_rce(FRESH, FRESH["uncalibrated_logit"])
    assert log_loss(FRESH, with_network) < log_loss(FRESH, without) - 0.05
    assert json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("changes", [NEUCALIB, ISOTONIC], ids=["neucalib", "isotonic_offset"])
def test_rivals_too_are_the_same_from_the_same_tables_and_seed(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"calibrator": changes["calibrator"] | {"epochs": 1, "auxiliary": {"epochs": 1}}}
    fingerprints = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        config, _ = train(tmp_path / name, short | {"seed": seed}, draw_rows(800))
        fingerprints.append(load_model(config.run_dir / "unified", "shop")[1].fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


@pytest.mark.parametrize(
    ("changes", "candidates"),
    [(PAPER, [3, 6]), (NO_NETWORK, [10])],
    ids=["paper", "robust"],
)
def test_bins_for_more_candidates_than_asked_change_nothing(
    tmp_path: Path, changes: dict[str, Any], candidates: list[int]
) -> None:
    wanted = {**changes, "bins": {"n_bins_candidates": candidates}}
    config, told = train(tmp_path / "asked", wanted, draw_rows(1000))
    more = make_config(tmp_path / "more", {**changes, "bins": {"n_bins_candidates": [2, 3, 6, 10, 30]}})
    write_world(more, draw_rows(1000))
    same = make_config(tmp_path / "more", wanted)
    train_calibrator(same)
    (own, first), (other, second) = (load_model(c.run_dir / "unified", "shop") for c in (config, same))
    assert second.documents["training"]["candidates"] == told["candidates"] == candidates
    for name, tensor in own.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert first.fingerprint == second.fingerprint
    with pytest.raises(OtherBins, match=r"made for \[2, 3, 6, 10, 30\] bins, .* asks for \[3, 5\]; run from"):
        train_calibrator(make_config(tmp_path / "more", {**changes, "bins": {"n_bins_candidates": [3, 5]}}))


def test_a_run_on_another_runs_tables_leaves_them_alone_and_prefers_its_own(tmp_path: Path) -> None:
    base, _ = train(tmp_path, NO_NETWORK, draw_rows(1000))
    before = {path: path.read_bytes() for path in base.run_dir.rglob("*") if path.is_file()}
    variant = make_config(tmp_path, NO_NETWORK | {"name": "variant", "inputs_from": str(base.run_dir)})
    train_calibrator(variant)
    assert {path: path.read_bytes() for path in base.run_dir.rglob("*") if path.is_file()} == before
    assert not (variant.run_dir / "tables").exists()
    np.testing.assert_array_equal(score(variant, FRESH), score(base, FRESH))
    # own cells, of rows without a response, are read where they are
    silent = draw_rows(1000)
    silent["label"] = np.zeros_like(silent["label"])
    elsewhere = make_config(tmp_path / "elsewhere", NO_NETWORK)
    write_world(elsewhere, silent)
    shutil.copytree(elsewhere.run_dir / "tables" / "logit_cells", variant.run_dir / "tables" / "logit_cells")
    train_calibrator(variant)
    assert np.all(score(variant, FRESH) < -3)


def test_a_run_on_another_runs_tables_takes_its_predictor(tmp_path: Path) -> None:
    changes = NO_NETWORK | {"input": {"score": None}}
    base = make_config(tmp_path, changes)
    write_world(base, draw_rows(500))
    predictor = Predictor(2, [3], hidden=(4, 4, 4))
    fingerprint = publish_artifact(
        base.run_dir / "predictor", {"predictor": predictor.state_dict()}, {"predictor": predictor.hyper_parameters}
    )
    for table in ("logit_cells", "bin_statistics", "training_rows"):
        write_fingerprint(base, table, fingerprint)
    variant = make_config(tmp_path, changes | {"name": "variant", "inputs_from": str(base.run_dir)})
    train_calibrator(variant)
    model, artifact = load_model(variant.run_dir / "unified", "shop")
    assert artifact.documents["origin"]["predictor_fingerprint"] == fingerprint
    assert model.predictor is not None
    for name, tensor in predictor.state_dict().items():
        assert torch.equal(model.predictor.state_dict()[name], tensor)


def test_the_network_stops_when_held_out_loss_does(tmp_path: Path) -> None:
    # 400 rows and 60 epochs: without patience they would be learned by heart
    eager = {"calibrator": {"auxiliary": {"epochs": 60, "patience": 2, "learning_rate": 0.05}}}
    _, told = train(tmp_path, eager, draw_rows(400, hold_out_share=0.4))
    losses = [epoch["held_out_loss"] for epoch in told["loss_curves"]["auxiliary"]]
    best = int(np.argmin(losses))
    assert 3 < best < 50
    assert len(losses) - 1 == best + 2


@pytest.mark.parametrize("changes", [PAPER, NEUCALIB], ids=["paper", "neucalib"])
def test_training_on_cells_is_training_on_rows(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 16,000 rows are 2,029 cells and labels; 400 steps either way (50 per epoch on rows)
    monkeypatch.setattr(cell_passes, "MIN_STEPS_ON_CELLS", 400)
    rows = draw_rows(16_000, hold_out_share=0.0)
    own = {"epochs": 8, "learning_rate": 0.02, "auxiliary": {"enabled": False, "batch_size": 320}}
    losses: dict[bool, list[float]] = {False: [], True: []}
    for of_cells in losses:
        for seed in (7, 8):
            content = {**changes, "seed": seed, "calibrator": {**changes["calibrator"], **own}}
            config = make_config(tmp_path / f"{of_cells}-{seed}", content)
            write_world(config, rows, rows_of_cells=of_cells)
            train_calibrator(config)
            losses[of_cells].append(log_loss(FRESH, score(config, FRESH)))
            curve = load_model(config.run_dir / "unified", "shop")[1].documents["training"]["loss_curves"]
            passed = next(iter(curve.values()))[-1]["rows"]
            n_cells = len(cell_rows(rows)["label"])
            # 8 epochs of 400/8 steps of 320 rows, in whole passes
            assert passed == (n_cells * math.ceil(50 * 320 / n_cells) if of_cells else 16_000)
    # over ten seeds rows and cells differ by less than .002, both gain .1 on the un-calibrated score
    assert abs(np.mean(losses[True]) - np.mean(losses[False])) < 3e-3
    gain = log_loss(FRESH, FRESH["uncalibrated_logit"]) - np.mean(losses[True])
    assert gain > 0.07


def test_steps_on_cells_do_not_depend_on_their_number(tmp_path: Path) -> None:
    rows = draw_rows(300)
    config = make_config(tmp_path, without_network(PAPER) | {"bins": PAPER["bins"]})
    write_world(config, rows, rows_of_cells=True)
    files = open_rows(config.run_dir / "tables" / "training_rows")
    n_rows = len(cell_rows(rows)["label"])
    assert files.rows == n_rows
    for batch_size, epochs in ((64, 2), (4096, 8), (64, 1000)):
        auxiliary = config.calibrator.auxiliary.model_copy(update={"batch_size": batch_size})
        calibrator = config.calibrator.model_copy(update={"auxiliary": auxiliary, "epochs": epochs})
        given = config.model_copy(update={"calibrator": calibrator})
        taken, repeated = cell_passes.repeat_cells(given, files)
        own_batch = taken.calibrator.auxiliary.batch_size
        # no cell twice in a batch, the epochs asked for, at least one pass, whole passes, and about the steps wanted
        assert own_batch == min(batch_size, n_rows)
        assert taken.calibrator.epochs == epochs
        assert repeated.rows % n_rows == 0
        steps = epochs * repeated.rows / own_batch
        one_pass = epochs * n_rows / own_batch
        wanted = cell_passes.MIN_STEPS_ON_CELLS
        assert max(wanted, one_pass) <= steps <= wanted + one_pass
    # rows of samples are passed over once per epoch
    other = make_config(tmp_path / "rows", without_network(PAPER) | {"bins": PAPER["bins"]})
    write_world(other, rows)
    files = open_rows(other.run_dir / "tables" / "training_rows")
    assert cell_passes.repeat_cells(other, files) == (other, files)


def test_rows_of_cells_are_no_rows_for_a_network(tmp_path: Path) -> None:
    write_world(make_config(tmp_path, NEUCALIB), draw_rows(300), rows_of_cells=True)
    with pytest.raises(MixedTables, match=r"made from logit cells, which have no features.*run from build_logit_cells"):
        train_calibrator(make_config(tmp_path, NEUCALIB))


@pytest.mark.parametrize("table", ["logit_cells", "bin_statistics", "training_rows"])
def test_tables_of_other_rows_to_fit_on_are_refused(tmp_path: Path, table: str) -> None:
    base = make_config(tmp_path)
    write_world(base, draw_rows(200))
    path = base.run_dir / "tables" / table / "_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fit_on": "train_and_dev"}))
    changes = {"name": "variant", "inputs_from": str(base.run_dir), "calibrator": {"fit_on": "dev"}}
    with pytest.raises(MixedTables, match=rf"{table} made with another calibrator\.fit_on than dev; run from"):
        train_calibrator(make_config(tmp_path, changes))
