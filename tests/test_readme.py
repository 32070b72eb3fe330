"""What the reader is told and handed holds: the recipe's table, the stages, the pins, the Spark settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from adacalib.config import STAGES, read_config
from adacalib.doctor import read_pins

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SETTINGS = sorted((ROOT / "spark_conf").glob("*.conf"))


def test_recipe_makes_the_table_that_the_shipped_configuration_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    config = read_config(ROOT / "configs" / "scores.yaml")
    table = pd.read_parquet(config.input.path)
    assert len(table) == 20
    assert {config.input.score, config.input.label, *config.fields, *config.features.names} <= set(table.columns)
    assert table["score"].between(0, 1).all() and set(table["label"]) == {0, 1}


def test_readme_lists_every_stage() -> None:
    table = README[README.index("## What each stage reads and writes") : README.index("## Configuration")]
    assert re.findall(r"^\| (\w+) \| .* \|$", table, flags=re.MULTILINE)[1:] == list(STAGES)


def test_files_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"\b(?:configs|scripts|spark_conf)/[\w.]+", README))
    assert named >= {"configs/flights.yaml", "configs/scores.yaml", "configs/flights3m.yaml"}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_project_pins_what_the_lock_pins() -> None:
    lock = read_pins((ROOT / "requirements.lock").read_text().splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    dependencies = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"]]
    pins = read_pins([*dependencies, *project["build-system"]["requires"]])
    assert len(pins) == len(dependencies) + 1, "every dependency is pinned with =="
    assert {name: lock.get(name) for name in pins} == pins


def test_lock_is_pins_and_comments_only() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.stem)
def test_every_spark_setting_stands_below_its_reason(path: Path) -> None:
    # A blank line ends a reason: each block of settings begins with a comment.
    blocks = [block.strip().splitlines() for block in path.read_text().split("\n\n")]
    assert [block[0] for block in blocks if block and not block[0].startswith("#")] == []
    settings = [line for block in blocks for line in block if not line.startswith("#")]
    assert settings and all(re.match(r"spark\.[\w.]+[ =]", line) for line in settings)
