"""What a run says about itself: status.json, versions, and an error in one readable message."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from datetime import UTC, datetime
from typing import Any

from adacalib.config import STAGES, RunConfig
from adacalib.doctor import read_java_version

PACKAGES = ("pyspark", "torch", "pyarrow", "petastorm", "numpy")


def begin_status(config: RunConfig, stages: tuple[str, ...]) -> dict[str, Any]:
    """The status document of a run that is about to do these stages.

    Entries of stages that come before the first one stay from the status.json on disk (a run is often finished in
    several calls); later ones are dropped, since what they wrote is about to be outdated.
    """
    earlier = STAGES[: STAGES.index(stages[0])] if stages else STAGES
    return {
        "name": config.name,
        "state": "running",
        "stage": None,
        "error": None,
        "started": now(),
        "ended": None,
        "seconds": None,
        "seed": config.seed,
        "input_fingerprint": None,
        "versions": read_versions(),
        "stages": {stage: entry for stage, entry in _stages_on_disk(config).items() if stage in earlier},
    }


def read_versions() -> dict[str, str | None]:
    """Versions of Python, Java and the packages that decide a run's outputs; null for what is not there."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "java": read_java_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def read_input_fingerprint(config: RunConfig) -> str | None:
    """The fingerprint of the input that prepare_samples left beside the samples; None before it has run."""
    manifest = config.inputs_dir / "tables" / "samples" / "_manifest.json"
    if not manifest.is_file():
        return None
    fingerprint = json.loads(manifest.read_text()).get("input_fingerprint")
    return None if fingerprint is None else str(fingerprint)


def describe_error(error: BaseException) -> str:
    """An error's message without the stack traces that Spark puts into it.

    Of an exception in a Python worker the worker's own message is left; of a Java exception its innermost cause.
    An error without message gives its type's name.
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = str(error).strip()
    if "Traceback (most recent call last):" in text:
        text = _worker_message(text)
    text = text.partition("\n\nJVM stacktrace:")[0]
    if causes := re.findall(r"^Caused by: (.+)$", text, flags=re.MULTILINE):
        text = causes[-1]
    lines = [line for line in text.splitlines() if not re.match(r"\s+at |\s*\.\.\. \d+ more", line)]
    return "\n".join(lines).strip() or type(error).__name__


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _worker_message(text: str) -> str:
    trace = text.rpartition("Traceback (most recent call last):")[2].splitlines()[1:]
    start = next((index for index, line in enumerate(trace) if line and not line[0].isspace()), 0)
    message = []
    for line in trace[start:]:
        if not line.strip() or re.match(r"\s+at ", line):
            break
        message.append(line)
    # "ValueError: message" and "package.module.InputError: message" alike: the type is for the log.
    return re.sub(r"^[\w.]+: ", "", "\n".join(message), count=1)


def _stages_on_disk(config: RunConfig) -> dict[str, Any]:
    path = config.run_dir / "status.json"
    if not path.is_file():
        return {}
    try:
        stages = json.loads(path.read_text()).get("stages")
    except json.JSONDecodeError:
        return {}  # it only carries timings of earlier calls
    return stages if isinstance(stages, dict) else {}
