"""Names every mismatch between this machine and what AdaCalib runs on, each with its cure.

The checks are pure functions of what was found; `examine` finds it.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON = (3, 11)
JAVA = 17
MIN_FREE_GB = 5.0
"""Free disk below the runs folder: the demo writes well under 1 GB, 3 million rows about as much."""
MIN_MEMORY_GB = 7.0
"""4 GB of Spark driver, two ranks of about 1 GB, the rest of the system."""

REPOSITORY = Path(__file__).resolve().parent.parent
GIGABYTE = 1024**3


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what was looked at.
        found: what is there, in words.
        wanted: what AdaCalib needs.
        cure: what to do; empty when found meets wanted.
    """

    subject: str
    found: str
    wanted: str
    cure: str = ""

    @property
    def ok(self) -> bool:
        return not self.cure


def check_python(version: Sequence[int]) -> Finding:
    """Compares the interpreter's version, (major, minor, ...), with 3.11."""
    found = ".".join(str(part) for part in version[:3])
    wanted = ".".join(str(part) for part in PYTHON)
    cure = "" if tuple(version[:2]) == PYTHON else f"install Python {wanted} and run `make distclean install`"
    return Finding("Python", found, f"{wanted}.*", cure)


def check_java(version: str | None, java_home: str | None) -> Finding:
    """Compares the Java that Spark will start with 17.

    Args:
        version: such as "17.0.15"; None when there is no java to start.
        java_home: JAVA_HOME as set, which Spark takes before the java on PATH; None when unset.
    """
    origin = f"JAVA_HOME {java_home}" if java_home else "java on PATH"
    cure = 'run `export JAVA_HOME="$(scripts/java_home.sh)"`, which finds Java 17 or says how to install it'
    if version is None:
        return Finding("Java", f"none ({origin})", str(JAVA), cure)
    return Finding("Java", f"{version} ({origin})", str(JAVA), "" if version.split(".")[0] == str(JAVA) else cure)


def check_packages(pins: Mapping[str, str], installed: Mapping[str, str]) -> list[Finding]:
    """One finding per package that is missing or of another version; one in all when there is none.

    A local part of the installed version (2.13.0+cpu) is no mismatch. Packages without a pin are left alone.

    Args:
        pins: version by normalised package name, as `read_pins` gives it.
        installed: the same for what is there.
    """
    cure = "run `make install`; if that changes nothing, `make distclean install`"
    wrong = [
        Finding(f"package {name}", installed.get(name, "not installed"), pin, cure)
        for name, pin in sorted(pins.items())
        if installed.get(name, "").partition("+")[0] != pin
    ]
    return wrong or [Finding("packages", f"{len(pins)} as pinned", "as pinned in requirements.lock")]


def check_pyspark_python(variables: Mapping[str, str], executable: str) -> list[Finding]:
    """Spark's workers must run this interpreter; unset is well, because the command line sets both variables.

    Args:
        variables: the environment.
        executable: this interpreter's path.
    """
    findings = []
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        value = variables.get(name)
        cure = (
            ""
            if value is None or _is_same_interpreter(value, executable)
            else f"unset {name}, or export {name}={executable}"
        )
        findings.append(Finding(name, value or "unset", "unset or this interpreter", cure))
    return findings


def check_disk(free_bytes: int, folder: str) -> Finding:
    """Compares the free space of the file system that holds the runs with the least that a run wants."""
    free = free_bytes / GIGABYTE
    cure = f"free space below {folder} (`make clean` removes old runs), or set runs_dir to another disk"
    return Finding("disk", f"{free:.1f} GB free", f"{MIN_FREE_GB:g} GB", "" if free >= MIN_FREE_GB else cure)


def check_memory(total_bytes: int) -> Finding:
    """Compares the machine's (or the container's) memory with the least that the shipped settings want."""
    total = total_bytes / GIGABYTE
    cure = "use a larger machine, or lower spark.driver.memory in spark_conf/local.conf and set training.ranks to 1"
    return Finding("memory", f"{total:.1f} GB", f"{MIN_MEMORY_GB:g} GB", "" if total >= MIN_MEMORY_GB else cure)


def parse_java_version(output: str) -> str | None:
    """The version in what `java -version` prints: 17.0.15, and 8 for 1.8.0_412; None when there is none."""
    found = re.search(r'version "(?:1\.)?([0-9][^"]*)"', output)
    return found.group(1) if found else None


def read_pins(requirements: Sequence[str]) -> dict[str, str]:
    """Version by normalised name from lines like `torch==2.13.0`; comments and lines of other shape are skipped."""
    pins = {}
    for line in requirements:
        if found := re.match(r"^\s*([A-Za-z0-9._-]+)\s*==\s*([^\s;#]+)", line):
            pins[_normalise(found.group(1))] = found.group(2)
    return pins


def examine(runs_dir: str) -> list[Finding]:
    """Looks at this machine.

    Args:
        runs_dir: folder of the runs; it need not exist yet.
    """
    folder = Path(runs_dir).resolve()
    while not folder.exists():
        folder = folder.parent
    return [
        check_python(sys.version_info[:3]),
        check_java(read_java_version(), os.environ.get("JAVA_HOME")),
        *check_packages(_pins(), _installed()),
        *check_pyspark_python(os.environ, sys.executable),
        check_disk(shutil.disk_usage(folder).free, str(folder)),
        check_memory(_memory_bytes()),
    ]


def read_java_version() -> str | None:
    """Version of the Java that Spark will start: JAVA_HOME's, else the one on PATH; None when it does not start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(done.stderr + done.stdout)


def _pins() -> dict[str, str]:
    lock = REPOSITORY / "requirements.lock"
    if lock.is_file():
        return read_pins(lock.read_text().splitlines())
    # Installed from a wheel there is no lock beside the package; its metadata carry the pins that matter.
    needed = [line for line in importlib.metadata.requires("adacalib") or [] if "extra ==" not in line]
    return read_pins(needed)


def _installed() -> dict[str, str]:
    return {_normalise(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_same_interpreter(command: str, executable: str) -> bool:
    found = shutil.which(command)
    if found is None:
        return False
    # bin/python and bin/python3 are one; the python that an environment links to is not that environment's.
    one, other = Path(found).absolute(), Path(executable).absolute()
    return one.parent == other.parent and one.resolve() == other.resolve()


def _memory_bytes() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's share
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(total, int(text)) if text.isdigit() else total
