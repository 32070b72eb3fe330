"""The configuration: what it accepts, what it derives, and what each mistake is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.config import (
    STAGES,
    SWITCH_MODES,
    AuxiliaryConfig,
    CalibratorConfig,
    ConfigError,
    EvaluationConfig,
    RunConfig,
    parse_config,
    read_config,
)

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))

OWN_SCORES: dict[str, Any] = {
    "name": "one",
    "input": {"path": "scores.parquet", "label": "label", "score": "score"},
    "fields": ["campaign"],
}


def changed(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(OWN_SCORES) | changes


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configuration_is_valid_and_named_like_its_file(path: Path) -> None:
    assert read_config(path).name == path.stem


def test_shipped_configurations_are_the_three_of_the_readme() -> None:
    assert {path.stem for path in CONFIGS} >= {"flights", "flights3m", "scores"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_effective_configuration_reads_back_equal(path: Path, tmp_path: Path) -> None:
    config = read_config(path)
    as_json, as_yaml = tmp_path / "effective.json", tmp_path / "effective.yaml"
    as_json.write_text(json.dumps(config.model_dump(mode="json")))
    as_yaml.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert read_config(as_json) == config
    assert read_config(as_yaml) == config


@settings(max_examples=25, deadline=None)
@given(
    ranks=st.integers(1, 1024),
    learning_rate=st.floats(1e-12, 1e3),
    share=st.floats(0, 1),
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_any_valid_configuration_survives_json_read_as_yaml(
    ranks: int, learning_rate: float, share: float, name: str
) -> None:
    # YAML reads 1e-12, which JSON writes, as text: the model has to turn it back into the same number.
    config = parse_config(
        changed(
            name=name,
            input=OWN_SCORES["input"] | {"max_rejected_share": share},
            training={"ranks": ranks},
            predictor={"learning_rate": learning_rate},
        )
    )
    assert parse_config(yaml.safe_load(json.dumps(config.model_dump(mode="json")))) == config


def test_own_scores_without_features_need_neither_predictor_nor_training_rows() -> None:
    config = parse_config(OWN_SCORES)
    assert config.stages == tuple(s for s in STAGES if s not in ("train_predictor", "build_training_rows"))
    assert (config.has_auxiliary_network, config.n_bins_candidates) == (False, (20,))


def test_features_bring_the_auxiliary_network() -> None:
    config = parse_config(changed(features={"categorical": ["hour"], "numeric": {"price": "log(price)"}}))
    assert config.stages == tuple(s for s in STAGES if s != "train_predictor")
    assert config.features.names == ("price", "hour")
    assert config.features.categorical == {"hour": "hour"}
    assert config.has_auxiliary_network


def test_paper_mode_takes_the_papers_candidates_and_the_middle_one_without_adaptive_binning() -> None:
    assert parse_config(changed(calibrator={"mode": "paper"})).n_bins_candidates == (5, 10, 20)
    fixed = parse_config(changed(calibrator={"mode": "paper", "adaptive_binning": False}))
    assert fixed.n_bins_candidates == (10,)


def test_raw_table_without_scores_runs_all_stages() -> None:
    content = changed(input={"path": "t", "label": "y"}, features={"numeric": ["x"]})
    assert parse_config(content).stages == STAGES


@pytest.mark.parametrize(
    "changes",
    [
        {"input": OWN_SCORES["input"] | {"truth": "p"}},
        {"input": OWN_SCORES["input"] | {"negative_sampling_rate": 0.5}},
        {"split": {"test_only": "shop = 'new'"}},
    ],
)
def test_keys_that_shape_the_samples_make_another_generation(changes: dict[str, Any]) -> None:
    before = parse_config(OWN_SCORES).describe_generation("9-1")
    assert parse_config(changed(**changes)).describe_generation("9-1") != before
    path = OWN_SCORES["input"] | {"path": "moved.parquet"}
    assert parse_config(changed(input=path)).describe_generation("9-1") == before


def test_set_overrides_nested_keys_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(OWN_SCORES))
    config = read_config(path, ("fields=[dest, carrier]", "training.ranks=3", "calibrator.auxiliary.epochs=0"))
    assert (config.fields, config.training.ranks, config.calibrator.auxiliary.epochs) == (("dest", "carrier"), 3, 0)


def test_configuration_is_frozen() -> None:
    config = parse_config(OWN_SCORES)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"traning": {}}, r"traning: unknown key \(did you mean training\?\)"),
        ({"training": {"rank": 2}}, r"training\.rank: unknown key \(did you mean ranks\?\)"),
        ({"calibrator": {"auxiliary": {"epoch": 2}}}, r"calibrator\.auxiliary\.epoch: unknown key .*epochs"),
        ({"training": {"ranks": 0}}, r"training\.ranks: must be at least 1 and at most 1024 \(got 0\)"),
        ({"training": {"launcher": "mpi"}}, r"training\.launcher: .*'torchrun' or 'torch_distributor'"),
        ({"bins": {"n_bins_candidates": [10, 5]}}, "different whole numbers from 1 to 200 in increasing order"),
        ({"bins": {"n_bins_candidates": []}}, "different whole numbers from 1 to 200"),
        ({"split": {"train": 0.5, "dev": 0.2, "test": 0.2}}, r"train \+ dev \+ test is 0\.9; make it 1"),
        ({"split": {"by": "column"}}, "`column` goes with `by: column`"),
        ({"split": {"by": "date"}}, r"split\.by: date needs input\.date"),
        ({"fields": []}, "fields: .*at least 1 item"),
        ({"fields": ["a", "a"]}, "a field stands twice"),
        ({"fields": ["a b"]}, "'a b' is not a column name"),
        ({"name": "../up"}, "name: .*match"),
        ({"features": {"numeric": ["x"], "categorical": ["x"]}}, "x: numeric and categorical at once"),
        (
            {"features": {"numeric": ["price"]}, "predictor": {"features": ["prise"]}},
            r"predictor\.features: 'prise' is not in features \(did you mean price\?\)",
        ),
        ({"calibrator": {"auxiliary": {"enabled": True}}}, "there are no features for it"),
        ({"input": {"path": "t", "label": "y"}}, r"neither input\.score nor features"),
        ({"input": {"path": "t"}}, r"input\.label: Field required"),
        (
            {"input": {"path": "t", "label": "y", "negative_sampling_rate": 0.1}, "features": {"numeric": ["x"]}},
            r"input: negative_sampling_rate: 0\.1 corrects `score`, and there is none: .*remove it",
        ),
        (
            {"input": OWN_SCORES["input"] | {"negative_sampling_rate": 0}},
            r"input\.negative_sampling_rate: must be above 0(\.0)? and at most 1(\.0)? \(got 0\)",
        ),
        ({"input": OWN_SCORES["input"] | {"negative_sampling_rate": 1.5}}, "negative_sampling_rate: must be above 0"),
        ({"input": OWN_SCORES["input"] | {"truth": ""}}, r"input\.truth: .*at least 1 character"),
        ({"split": {"test_only": ""}}, r"split\.test_only: .*at least 1 character"),
    ],
)
def test_mistake_is_named_with_its_cure(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(changed(**changes))


def test_all_mistakes_come_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(changed(training={"ranks": 0}, seeds=3, fields=[]), source="my.yaml")
    text = str(caught.value)
    assert text.startswith("my.yaml: 3 fault(s)")
    assert all(word in text for word in ("training.ranks", "seeds: unknown key (did you mean seed?)", "fields"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "not valid YAML"),
        ("- a\n- b\n", "expected a mapping of keys, found list"),
        ("", "expected a mapping of keys, found NoneType"),
    ],
)
def test_file_that_is_no_mapping_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_config(path)


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: there is no such configuration file"):
        read_config("nowhere.yaml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.ranks", "write it as key=value"),
        ("name.part=1", "name is a value, not a section"),
        ("fields=[a", "the value is not valid YAML"),
    ],
)
def test_faulty_override_is_refused(override: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(OWN_SCORES))
    with pytest.raises(ConfigError, match=message):
        read_config(path, (override,))


def test_schema_describes_every_top_level_key() -> None:
    assert set(RunConfig.model_json_schema()["properties"]) == set(RunConfig.model_fields)


@pytest.mark.parametrize(
    ("mode", "switch", "acts_in"),
    [("robust", "adaptive_function", "paper"), ("paper", "value_level", "robust"), ("paper", "do_no_harm", "robust")],
)
def test_switch_of_the_other_mode_is_refused(mode: str, switch: str, acts_in: str) -> None:
    content = {
        "name": "x",
        "input": {"path": "a", "label": "y", "score": "s"},
        "fields": ["f"],
        "calibrator": {"mode": mode, switch: False},
    }
    with pytest.raises(ConfigError, match=f"{switch}: acts in mode {acts_in} only, and this is mode {mode}"):
        parse_config(content)
    assert parse_config(content | {"calibrator": {"mode": acts_in, switch: False}}).calibrator.mode == acts_in


def test_a_features_name_is_a_plain_word() -> None:
    content = {
        "name": "x",
        "input": {"path": "a", "label": "y", "score": "s"},
        "fields": ["f"],
        "features": {"categorical": ["device.os"]},
    }
    with pytest.raises(ConfigError, match=r"'device\.os': .*write it as \{device_os: device\.os\}"):
        parse_config(content)
    assert parse_config(content | {"features": {"categorical": {"device_os": "device.os"}}}).features.names == (
        "device_os",
    )


def test_a_text_where_a_list_belongs_is_told_how_to_write_it() -> None:
    content = {"name": "x", "input": {"path": "a", "label": "y", "score": "s"}, "fields": "dest"}
    with pytest.raises(ConfigError, match=r"fields: a list is needed: write \[dest\]"):
        parse_config(content)


WITH_FEATURES = changed(features={"numeric": ["price"]})
MODES = ("robust", "paper", "neucalib", "isotonic_offset")


@pytest.mark.parametrize("mode", MODES)
def test_every_switch_is_taken_where_it_acts_and_refused_where_not(mode: str) -> None:
    for switch, modes in SWITCH_MODES.items():
        default = CalibratorConfig.model_fields[switch].default
        content = changed(calibrator={"mode": mode, switch: not default})
        if mode in modes:
            assert getattr(parse_config(content).calibrator, switch) is not default
        else:
            where = f"{switch}: acts in mode {' and '.join(modes)} only, and this is mode {mode}"
            with pytest.raises(ConfigError, match=where):
                parse_config(content)
        parse_config(changed(calibrator={"mode": mode, switch: default}))  # said, but as it is anyway


def test_no_switch_is_without_its_modes() -> None:
    switches = {name for name, field in CalibratorConfig.model_fields.items() if field.annotation is bool}
    assert switches == set(SWITCH_MODES)
    assert {mode for modes in SWITCH_MODES.values() for mode in modes} <= set(MODES)


def test_idle_switches_come_in_one_message() -> None:
    with pytest.raises(
        ConfigError, match=r"posterior_guidance: acts in mode paper .*; value_level: acts in mode robust"
    ):
        parse_config(changed(calibrator={"mode": "neucalib", "value_level": False, "posterior_guidance": False}))


@pytest.mark.parametrize(
    ("mode", "enabled", "streams_rows"),
    [
        ("robust", True, True),
        ("isotonic_offset", True, True),
        ("paper", True, True),
        ("neucalib", True, True),
        # without the network the first two need cells only
        ("robust", False, False),
        ("isotonic_offset", False, False),
        ("paper", False, True),
        ("neucalib", False, True),
    ],
)
def test_rows_per_mode(mode: str, enabled: bool, streams_rows: bool) -> None:
    config = parse_config(WITH_FEATURES | {"calibrator": {"mode": mode, "auxiliary": {"enabled": enabled}}})
    assert config.streams_rows == streams_rows
    assert ("build_training_rows" in config.stages) == streams_rows
    assert config.n_bins_candidates == ((5, 10, 20) if mode == "paper" else (20,))


def test_fit_on_names_its_splits() -> None:
    assert parse_config(OWN_SCORES).fit_splits == ("train", "dev")
    assert parse_config(changed(calibrator={"fit_on": "dev"})).fit_splits == ("dev",)
    # a column says by itself what is dev
    by_column = {"split": {"by": "column", "column": "part", "train": 0.8, "dev": 0, "test": 0.2}}
    assert parse_config(changed(calibrator={"fit_on": "dev"}, **by_column)).fit_splits == ("dev",)
    no_dev = {"split": {"train": 0.8, "dev": 0, "test": 0.2}}
    with pytest.raises(ConfigError, match=r"calibrator\.fit_on: dev, but split\.dev is 0: give it rows"):
        parse_config(changed(calibrator={"fit_on": "dev"}, **no_dev))
    with pytest.raises(ConfigError, match=r"calibrator\.fit_on: .*'train_and_dev' or 'dev'"):
        parse_config(changed(calibrator={"fit_on": "train"}))


def test_a_run_on_another_runs_tables_has_the_calibrators_stages_alone() -> None:
    alone = parse_config(WITH_FEATURES)
    assert alone.inputs_dir == alone.run_dir
    config = parse_config(WITH_FEATURES | {"inputs_from": "runs/base"})
    assert config.inputs_dir == Path("runs/base")
    assert config.run_dir == Path("runs/one")
    own = ("build_logit_cells", "compute_bin_statistics", "build_training_rows", "train_calibrator")
    assert config.stages == own
    # no predictor stage whether it brings its scores or not, and no rows where none are streamed
    trained = parse_config(WITH_FEATURES | {"inputs_from": "runs/base", "input": {"path": "t", "label": "y"}})
    assert trained.stages == own
    no_network = {"calibrator": {"auxiliary": {"enabled": False}}}
    assert parse_config(WITH_FEATURES | {"inputs_from": "b"} | no_network).stages == (own[0], own[1], own[3])
    # the samples are those of the other run: the same generation
    assert config.describe_generation("9-1") == alone.describe_generation("9-1")
    with pytest.raises(ConfigError, match=r"inputs_from: .*at least 1 character"):
        parse_config(changed(inputs_from=""))


def test_what_the_calibrator_does_leaves_the_generation_as_it_is() -> None:
    before = parse_config(WITH_FEATURES).describe_generation("9-1")
    for calibrator in ({"mode": "neucalib"}, {"fit_on": "dev"}, {"auxiliary": {"epochs": 1}}, {"re_level": False}):
        assert parse_config(WITH_FEATURES | {"calibrator": calibrator}).describe_generation("9-1") == before


def test_score_cells_are_fine_for_few_scores() -> None:
    assert EvaluationConfig().choose_score_cells(1_000_000) == 2**20
    assert EvaluationConfig().choose_score_cells(1_000_001) == 128
    assert EvaluationConfig(score_cells_per_logit=512).choose_score_cells(10) == 512


def test_the_network_is_larger_where_samples_tell_much() -> None:
    chosen = AuxiliaryConfig()
    assert chosen.choose_hidden(199_999.0) == (64, 64) and chosen.choose_hidden(200_000.0) == (128, 64)
    assert chosen.choose_numeric_pieces(199_999.0) == 0 and chosen.choose_numeric_pieces(200_000.0) == 16
    assert AuxiliaryConfig(numeric_pieces=3).choose_numeric_pieces(0.0) == 3
    assert AuxiliaryConfig(numeric_pieces=0).choose_numeric_pieces(1e9) == 0
    assert AuxiliaryConfig(hidden=(8,)).choose_hidden(10**9) == (8,)
    assert AuxiliaryConfig(hidden=()).choose_hidden(10**9) == ()  # a linear term
