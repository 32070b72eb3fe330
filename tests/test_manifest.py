"""adacalib/manifest.py: tables that are read together come from one input, configuration and predictor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adacalib.config import RunConfig, parse_config
from adacalib.manifest import MixedTables, TableMissing, find_table, read_manifest, read_origin


def make_config(folder: Path, **changes: Any) -> RunConfig:
    content = {
        "name": "w",
        "runs_dir": str(folder),
        "input": {"path": "t.parquet", "label": "y", "score": "s"},
        "fields": ["shop", "town"],
    }
    return parse_config(content | changes)


def write(config: RunConfig, table: str, **facts: Any) -> None:
    path = config.run_dir / "tables" / table / "_manifest.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": 1, **facts}))


def write_chain(config: RunConfig) -> str:
    generation = config.describe_generation("9-ab")
    write(config, "samples", input_fingerprint="9-ab", generation=generation)
    write(config, "field_values", generation=generation)
    write(config, "scored_samples", generation=generation, predictor_fingerprint="p1")
    return generation


def test_origin_is_handed_on(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    generation = write_chain(config)
    assert read_origin(config, ("samples", "field_values")) == {"generation": generation}
    expected = {"generation": generation, "predictor_fingerprint": "p1"}
    assert read_origin(config, ("scored_samples", "field_values")) == expected
    assert read_origin(config, ("samples",), {"predictor": {"predictor_fingerprint": "p1"}}) == expected


def test_tables_of_two_generations_are_refused(tmp_path: Path) -> None:
    # prepare_samples ran again on other rows, and was killed, or score_samples was not run after it
    config = make_config(tmp_path)
    generation = write_chain(config)
    other = config.describe_generation("8-cd")
    write(config, "field_values", generation=other)
    message = f"not from one input and configuration .scored_samples from {generation}, field_values from {other}."
    with pytest.raises(MixedTables, match=message):
        read_origin(config, ("scored_samples", "field_values"))


def test_a_model_of_another_generation_or_predictor_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    write_chain(config)
    with pytest.raises(MixedTables, match=r"samples from .*, unified from old.; run from prepare_samples again"):
        read_origin(config, ("samples",), {"unified": {"generation": "old"}})
    with pytest.raises(MixedTables, match=r"scored_samples from p1, predictor from p2.; run from score_samples again"):
        read_origin(config, ("scored_samples",), {"predictor": {"predictor_fingerprint": "p2"}})


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 8},
        {"fields": ["town", "shop"]},
        {"split": {"train": 0.5, "dev": 0.2, "test": 0.3}},
        {"features": {"numeric": ["price"]}},
        {"input": {"path": "t.parquet", "label": "y > 2", "score": "s"}},
    ],
    ids=str,
)
def test_another_configuration_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_chain(make_config(tmp_path))
    with pytest.raises(MixedTables, match="another input, fields, features, split or seed"):
        read_origin(make_config(tmp_path, **changes), ("samples",))


def test_keys_that_leave_the_samples_as_they_are_do_not_matter(tmp_path: Path) -> None:
    write_chain(make_config(tmp_path))
    moved = {"path": "elsewhere/*.parquet", "label": "y", "score": "s", "max_rejected_share": 0.5}
    origin = read_origin(make_config(tmp_path, input=moved, training={"ranks": 2}), ("samples",))
    assert origin == {"generation": make_config(tmp_path).describe_generation("9-ab")}


def test_a_manifest_that_is_not_there_or_no_object(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with pytest.raises(TableMissing, match="table logit_cells is not there; run `adacalib build_logit_cells` first"):
        read_origin(config, ("logit_cells",))
    write(config, "samples")
    path = config.run_dir / "tables" / "samples"
    (path / "_manifest.json").write_text("{")
    with pytest.raises(TableMissing, match=r"not valid JSON .*run `adacalib prepare_samples` again"):
        read_manifest(path)
    (path / "_manifest.json").write_text("[1]")
    with pytest.raises(TableMissing, match="expected a JSON object"):
        read_manifest(path)


def test_a_table_is_the_runs_own_or_that_of_the_run_it_begins_with(tmp_path: Path) -> None:
    base = make_config(tmp_path, name="base")
    own = make_config(tmp_path, name="own", inputs_from=str(base.run_dir))
    for config in (base, own):
        write(config, "logit_cells")
    write(base, "samples")
    assert find_table(own, "logit_cells") == own.run_dir / "tables" / "logit_cells"
    assert find_table(own, "samples") == base.run_dir / "tables" / "samples"
    # the manifest is written last: a folder without one is no table
    (own.run_dir / "tables" / "logit_cells" / "_manifest.json").unlink()
    assert find_table(own, "logit_cells") == base.run_dir / "tables" / "logit_cells"
    # a table that neither has is looked for where its stage would run
    assert find_table(own, "scored_samples") == base.run_dir / "tables" / "scored_samples"
    assert find_table(base, "scored_samples") == base.run_dir / "tables" / "scored_samples"


def test_origin_is_read_over_both_runs(tmp_path: Path) -> None:
    base = make_config(tmp_path, name="base")
    own = make_config(tmp_path, name="own", inputs_from=str(base.run_dir))
    generation = write_chain(base)
    write(own, "logit_cells", generation=generation, predictor_fingerprint="p1")
    expected = {"generation": generation, "predictor_fingerprint": "p1"}
    assert read_origin(own, ("samples", "scored_samples", "logit_cells")) == expected
    # the base was made anew with another predictor, the own cells are those of the old one
    write(base, "scored_samples", generation=generation, predictor_fingerprint="p2")
    with pytest.raises(MixedTables, match=r"base: not from one predictor .scored_samples from p2, logit_cells from p1"):
        read_origin(own, ("samples", "scored_samples", "logit_cells"))
    other = make_config(tmp_path, name="own", inputs_from=str(base.run_dir), seed=8)
    with pytest.raises(MixedTables, match=r"base: its tables were made with another input, .* or seed than this"):
        read_origin(other, ("samples",))


@pytest.mark.parametrize(("made", "asked"), [("train_and_dev", "dev"), ("dev", "train_and_dev")])
def test_tables_of_other_rows_to_fit_on_are_refused(tmp_path: Path, made: str, asked: str) -> None:
    config = make_config(tmp_path, calibrator={"fit_on": asked})
    generation = write_chain(config)
    write(config, "logit_cells", generation=generation, fit_on=made)
    write(config, "bin_statistics", generation=generation, fit_on=asked)
    message = rf"logit_cells made with another calibrator\.fit_on than {asked}; run from build_logit_cells again"
    with pytest.raises(MixedTables, match=message) as caught:
        read_origin(config, ("samples", "logit_cells", "bin_statistics"))
    assert "bin_statistics" not in str(caught.value)
    write(config, "logit_cells", generation=generation, fit_on=asked)
    assert read_origin(config, ("samples", "logit_cells", "bin_statistics")) == {"generation": generation}
