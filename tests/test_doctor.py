"""The doctor: faked findings, each mismatch with its cure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adacalib.doctor import (
    GIGABYTE,
    check_disk,
    check_java,
    check_memory,
    check_packages,
    check_pyspark_python,
    check_python,
    examine,
    parse_java_version,
    read_java_version,
    read_pins,
)


@pytest.mark.parametrize(("version", "ok"), [((3, 11, 7), True), ((3, 12, 0), False), ((3, 10, 13), False)])
def test_python(version: tuple[int, int, int], ok: bool) -> None:
    finding = check_python(version)
    assert finding.ok is ok
    assert finding.found == ".".join(map(str, version))
    assert ok or "install Python 3.11" in finding.cure


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', "17.0.15"),
        ('openjdk version "17" 2021-09-14', "17"),
        ('java version "1.8.0_412"', "8.0_412"),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2"', "21.0.2"),
        ("command not found", None),
        ("", None),
    ],
)
def test_java_version_is_read_from_what_java_prints(output: str, version: str | None) -> None:
    assert parse_java_version(output) == version


@pytest.mark.parametrize(
    ("version", "ok"), [("17.0.15", True), ("17", True), ("8.0_412", False), ("21.0.2", False), ("170.1", False)]
)
def test_java_17_and_no_other(version: str, ok: bool) -> None:
    finding = check_java(version, "/opt/java")
    assert finding.ok is ok
    assert "JAVA_HOME /opt/java" in finding.found
    assert ok or "scripts/java_home.sh" in finding.cure


def test_no_java_at_all() -> None:
    finding = check_java(None, None)
    assert not finding.ok
    assert finding.found == "none (java on PATH)"


def make_java(home: Path, version: str) -> Path:
    """A java that says its version as the real one does, on stderr."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return home


def test_java_of_java_home_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path, "11.0.2")))
    assert read_java_version() == "11.0.2"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert read_java_version() is None


def test_packages_by_hand() -> None:
    # torch's local part is no mismatch, extra packages are left alone: numpy and pyarrow are the two mismatches.
    pins = {"numpy": "1.26.4", "torch": "2.13.0", "pyarrow": "14.0.2", "scipy": "1.17.1"}
    installed = {"numpy": "2.0.0", "torch": "2.13.0+cpu", "scipy": "1.17.1", "other": "1"}
    findings = check_packages(pins, installed)
    assert [(f.subject, f.found, f.wanted) for f in findings] == [
        ("package numpy", "2.0.0", "1.26.4"),
        ("package pyarrow", "not installed", "14.0.2"),
    ]
    assert all("make install" in finding.cure for finding in findings)


def test_packages_all_well_is_one_finding() -> None:
    (finding,) = check_packages({"numpy": "1.26.4"}, {"numpy": "1.26.4"})
    assert finding.ok and finding.found == "1 as pinned"


def test_pins_are_read_with_normalised_names() -> None:
    lines = ["# comment==1", "Jinja2==3.1.6", "typing_extensions==4.16.0  # why", "", "a.b==1 ; python_version > '3'"]
    assert read_pins(lines) == {"jinja2": "3.1.6", "typing-extensions": "4.16.0", "a-b": "1"}


def test_pyspark_python_unset_or_this_interpreter_is_well() -> None:
    for variables in ({}, {"PYSPARK_PYTHON": sys.executable}):
        assert all(finding.ok for finding in check_pyspark_python(variables, sys.executable))


def test_pyspark_python_of_an_environment_is_not_the_python_it_links_to(tmp_path: Path) -> None:
    base, environment = tmp_path / "usr" / "python", tmp_path / "env" / "python"
    for folder in (base.parent, environment.parent):
        folder.mkdir()
    base.write_text("#!/bin/sh\n")
    base.chmod(0o755)
    environment.symlink_to(base)
    alias = environment.parent / "python3"
    alias.symlink_to(environment)
    assert check_pyspark_python({"PYSPARK_PYTHON": str(alias)}, str(environment))[0].ok
    worker, driver = check_pyspark_python({"PYSPARK_PYTHON": str(base), "PYSPARK_DRIVER_PYTHON": "no-such"}, str(alias))
    assert worker.cure == f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={alias}"
    assert not driver.ok


@pytest.mark.parametrize(("gigabytes", "ok"), [(4.9, False), (5.0, True)])
def test_disk(gigabytes: float, ok: bool) -> None:
    finding = check_disk(int(gigabytes * GIGABYTE), "/data")
    assert finding.ok is ok
    assert ok or "/data" in finding.cure


@pytest.mark.parametrize(("gigabytes", "ok"), [(6.5, False), (7.0, True)])
def test_memory(gigabytes: float, ok: bool) -> None:
    finding = check_memory(int(gigabytes * GIGABYTE))
    assert finding.ok is ok
    assert ok or "spark.driver.memory" in finding.cure


def test_examine_looks_at_everything_and_needs_no_runs_folder(tmp_path: Path) -> None:
    subjects = {finding.subject for finding in examine(str(tmp_path / "not" / "there"))}
    assert {"Python", "Java", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "disk", "memory"} <= subjects
