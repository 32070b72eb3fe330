"""Who may import whom, and other laws of the house, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = sorted((ROOT / "adacalib").rglob("*.py"))
ALL = OURS + sorted((ROOT / "jobs").rglob("*.py"))

CONFIG = {"adacalib.config", "adacalib.manifest"}
CELLS = {"adacalib.cells"}
WORLDS = {"adacalib.worlds"}
MAY_IMPORT = {
    # room or file below adacalib: the modules of ours it may import, its own room aside
    "config.py": set(),
    "manifest.py": {"adacalib.config"},
    "schemas.py": set(),
    "job_arguments.py": {"adacalib.config"},
    "doctor.py": set(),
    "terminal.py": set(),
    "status.py": CONFIG | {"adacalib.doctor"},
    "io.py": CONFIG | {"adacalib.schemas", "adacalib.job_arguments"},
    "window.py": CONFIG | {"adacalib.schemas", "adacalib.io"},
    "cli.py": CONFIG
    | WORLDS
    | {"adacalib.doctor", "adacalib.status", "adacalib.terminal", "adacalib.io", "adacalib.report"}
    | {"jobs.pipeline", "jobs.compare", "jobs.ablate", "jobs.generate", "jobs.prepare_ali_ccp"},
    "cells": set(),
    "baselines": CELLS,
    "worlds": set(),
    "stats": CONFIG | CELLS | WORLDS | {"adacalib.schemas"},
    "model": CONFIG | CELLS | {"adacalib.baselines"},
    "report": CONFIG,
}
NEVER = {
    "cells": {"pyspark", "torch", "petastorm", "pyarrow", "pandas"},
    "baselines": {"pyspark", "torch", "petastorm", "pyarrow"},
    "worlds": {"pyspark", "torch", "petastorm", "pyarrow", "pandas"},
    "stats": {"torch", "petastorm"},
    "model": {"pyspark"},
    "report": {"pyspark", "torch", "petastorm"},
    "config.py": {"pyspark", "torch", "numpy"},
    "manifest.py": {"pyspark", "torch", "numpy"},
}


def room(path: Path) -> str:
    return path.relative_to(ROOT / "adacalib").parts[0]


def find_imports(source: str) -> Iterator[str]:
    """Full names of what a module imports, from-imports as module.name; those for type checkers are left out."""
    for node in ast.walk(_ForTypeCheckers().visit(ast.parse(source))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield from (f"{node.module}.{name.name}" for name in node.names)


class _ForTypeCheckers(ast.NodeTransformer):
    """Takes the body of `if TYPE_CHECKING` out of a module."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else node


def is_within(name: str, modules: set[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def find_forbidden_imports(source: str, where: str, own: str) -> list[str]:
    allowed, never = MAY_IMPORT[where] | {own, "adacalib.__version__"}, NEVER.get(where, set())
    return sorted(
        name
        for name in find_imports(source)
        if name.split(".")[0] in never or (name.split(".")[0] in ("adacalib", "jobs") and not is_within(name, allowed))
    )


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_what_its_room_may(path: Path) -> None:
    where = room(path)
    if where in ("__init__.py", "launch.py"):  # launch.py: the one place where pyspark meets torch
        return
    own = "adacalib." + where.removesuffix(".py")
    assert find_forbidden_imports(path.read_text(), where, own) == []


@pytest.mark.parametrize(
    ("where", "source", "wrong"),
    [
        ("cells", "import torch.nn", ["torch.nn"]),
        ("cells", "def f():\n    from pyspark.sql import functions", ["pyspark.sql.functions"]),
        ("worlds", "import pyarrow", ["pyarrow"]),
        ("worlds", "from adacalib.cells.auc import compute_auc", ["adacalib.cells.auc.compute_auc"]),
        ("cells", "from adacalib.worlds.kinds import WORLDS", ["adacalib.worlds.kinds.WORLDS"]),
        ("model", "from adacalib import stats", ["adacalib.stats"]),
        ("model", "from adacalib.stats.samples import x", ["adacalib.stats.samples.x"]),
        ("report", "from adacalib.cells import auc", ["adacalib.cells.auc"]),
        ("config.py", "import adacalib.io", ["adacalib.io"]),
        ("stats", "from adacalib import io, schemas", ["adacalib.io"]),
        ("cells", "from adacalib.cells.auc import compute_auc\nimport numpy", []),
        ("model", "if TYPE_CHECKING:\n    import pyspark\nelse:\n    import torch", []),
    ],
)
def test_the_import_law_itself_can_fail(where: str, source: str, wrong: list[str]) -> None:
    assert find_forbidden_imports(source, where, "adacalib." + where.removesuffix(".py")) == wrong


def test_petastorm_is_imported_in_stream_only() -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in ALL
        if any(name.split(".")[0] == "petastorm" for name in find_imports(path.read_text()))
    }
    assert users <= {"adacalib/model/stream.py"}


def find_session_use(source: str) -> list[str]:
    """Reading, writing and sessions in a transform's source, docstrings and comments aside."""
    found = []
    for node in ast.walk(ast.parse(source)):
        # frame.sparkSession stays free: it makes a small table in the session that the frame is in.
        if isinstance(node, ast.Attribute) and node.attr in ("read", "write", "readStream", "writeStream"):
            found.append(f".{node.attr}")
        if isinstance(node, ast.Name) and node.id == "SparkSession":
            found.append("SparkSession")
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "adacalib" / "stats").glob("*.py")), ids=lambda path: path.stem)
def test_transform_neither_reads_nor_writes_nor_knows_a_session(path: Path) -> None:
    assert find_session_use(path.read_text()) == []


def test_session_law_itself_can_fail() -> None:
    source = '"""SparkSession and .read in words are fine."""\nframe.write.parquet(SparkSession)'
    assert sorted(find_session_use(source)) == [".write", "SparkSession"]


def find_undocumented(source: str) -> list[str]:
    """The module and its public functions and classes, as far as they have no docstring."""
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_public(node) and not ast.get_docstring(node):
            missing.append(node.name)
    return missing


def is_public(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return not node.name.startswith("_")


# An entry point that its module's docstring describes in full.
DESCRIBED_BY_MODULE = {"run", "main"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_public_says_what_it_is(path: Path) -> None:
    missing = find_undocumented(path.read_text())
    if path.parent.name == "jobs":
        missing = [name for name in missing if name not in DESCRIBED_BY_MODULE]
    assert missing == []


def test_docstring_law_itself_can_fail() -> None:
    assert find_undocumented("def f(): ...\ndef _g(): ...\nclass C: ...") == ["the module", "f", "C"]


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.stem)
def test_job_sets_nothing_of_spark(path: Path) -> None:
    assert '"spark.' not in path.read_text()


BLOCKER = """
import importlib, pkgutil, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
for room in {rooms!r}:
    for module in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        if module.name not in {skipped!r}:
            importlib.import_module(module.name)
"""


def import_with_blocked(rooms: list[str], blocked: set[str], skipped: set[str]) -> str:
    """Imports all modules of the rooms in a fresh interpreter; the error, empty when there is none."""
    code = BLOCKER.format(rooms=rooms, blocked=blocked, skipped=skipped)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return done.stderr if done.returncode else ""


def test_cells_baselines_and_worlds_need_neither_spark_nor_torch() -> None:
    rooms = ["adacalib.cells", "adacalib.baselines", "adacalib.worlds"]
    error = import_with_blocked(rooms, {"pyspark", "torch", "petastorm"}, set())
    assert error == ""


def test_model_needs_no_spark_but_for_its_stream() -> None:
    assert import_with_blocked(["adacalib.model"], {"pyspark"}, {"adacalib.model.stream"}) == ""


def test_blocking_blocks() -> None:
    assert "blocked: numpy" in import_with_blocked(["adacalib.cells"], {"numpy"}, set())
