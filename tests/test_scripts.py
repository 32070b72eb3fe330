"""The scripts behind make: which Java they take, and what they say when there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ("bash", "grep", "readlink", "dirname", "id", "cat", "cksum")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the scripts' tools alone: no java, no python, no apt-get."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (folder / tool).symlink_to(found)
    return folder


def make_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return home


def run(script: Path, *arguments: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path / "bash"), str(script), *arguments],
        env={"PATH": str(path), "HOME": os.devnull} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def java_home(*places: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(ROOT / "scripts" / "java_home.sh", *places, path=path, **variables)


def test_java_home_comes_first_where_it_is_17(tmp_path: Path, tools: Path) -> None:
    ours, other = make_java(tmp_path / "ours", "17.0.15"), make_java(tmp_path / "other", "17.0.1")
    done = java_home(str(other), path=tools, JAVA_HOME=str(ours))
    assert (done.returncode, done.stdout) == (0, f"{ours}\n")


@pytest.mark.parametrize("version", ["11.0.2", "21.0.2", "1.8.0_412", "170.1"])
def test_java_home_of_another_version_is_passed_over(version: str, tmp_path: Path, tools: Path) -> None:
    old, place = make_java(tmp_path / "old", version), make_java(tmp_path / "place", "17.0.1")
    done = java_home(str(tmp_path / "nothing"), str(place), path=tools, JAVA_HOME=str(old))
    assert (done.returncode, done.stdout) == (0, f"{place}\n")


def test_java_on_path_is_followed_to_its_home(tmp_path: Path, tools: Path) -> None:
    home = make_java(tmp_path / "home", "17")
    (tools / "java").symlink_to(home / "bin" / "java")
    assert java_home(str(tmp_path / "nothing"), path=tools).stdout == f"{home}\n"


def test_no_java_is_one_sentence_and_a_failure(tmp_path: Path, tools: Path) -> None:
    done = java_home(str(tmp_path / "nothing"), path=tools)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Java 17 is missing: install it") and done.stderr.count("\n") == 1


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with what the installer looks at and nothing else."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install.sh", folder / "scripts")
    (folder / "requirements.lock").write_text("torch==2.13.0\n")
    (folder / "pyproject.toml").write_text("[project]\n")
    return folder


def make_python(path: Path, *, is_311: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if is_311 else 1}\n")
    path.chmod(0o755)


def test_install_without_python_311_is_one_sentence(checkout: Path, tools: Path) -> None:
    make_python(tools / "python3", is_311=False)
    done = run(checkout / "scripts" / "install.sh", path=tools)
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 is missing: install it") and done.stderr.count("\n") == 1


def test_install_leaves_an_environment_that_fits_alone_and_redoes_one_that_does_not(
    checkout: Path, tools: Path
) -> None:
    # Without any Python on PATH the installer can only succeed where it has nothing to do.
    make_python(checkout / ".venv" / "bin" / "python", is_311=True)
    lock, project = (checkout / name for name in ("requirements.lock", "pyproject.toml"))
    sums = subprocess.run(
        ["cksum"], input=lock.read_text() + project.read_text(), capture_output=True, text=True, check=True
    ).stdout
    (checkout / ".venv" / "installed").write_text(sums)
    script = checkout / "scripts" / "install.sh"
    assert run(script, path=tools).returncode == 0
    lock.write_text("torch==2.14.0\n")
    assert run(script, path=tools).returncode == 1


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"run", "test", "check", "clean", "distclean", "install"} <= listed
