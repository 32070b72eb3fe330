"""What a run says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adacalib.config import RunConfig, parse_config
from adacalib.status import begin_status, describe_error, read_input_fingerprint, read_versions


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    own = {"path": "t", "label": "y", "score": "s"}
    return parse_config({"name": "one", "runs_dir": str(tmp_path), "input": own, "fields": ["f"], "seed": 11})


def test_rerun_keeps_the_entries_of_earlier_stages_only(config: RunConfig) -> None:
    config.run_dir.mkdir()
    old = {"prepare_samples": {"seconds": 1.0}, "score_samples": {"seconds": 2.0}, "evaluate": {"seconds": 3.0}}
    (config.run_dir / "status.json").write_text(json.dumps({"stages": old}))
    status = begin_status(config, ("score_samples",))
    assert status["stages"] == {"prepare_samples": {"seconds": 1.0}}
    assert (status["state"], status["seed"]) == ("running", 11)


def test_cut_off_status_file_does_not_stop_a_run(config: RunConfig) -> None:
    config.run_dir.mkdir()
    (config.run_dir / "status.json").write_text('{"stages": {"prepare')
    assert begin_status(config, ("evaluate",))["stages"] == {}


def test_versions_name_all_that_decide_the_outputs() -> None:
    versions = read_versions()
    assert set(versions) == {"python", "java", "pyspark", "torch", "pyarrow", "petastorm", "numpy"}
    assert versions["petastorm"] == "0.13.1"


def test_input_fingerprint_comes_from_the_samples(config: RunConfig) -> None:
    assert read_input_fingerprint(config) is None
    samples = config.run_dir / "tables" / "samples"
    samples.mkdir(parents=True)
    (samples / "_manifest.json").write_text(json.dumps({"input_fingerprint": "3-00ff"}))
    assert read_input_fingerprint(config) == "3-00ff"


WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/spark/worker.py", line 1, in main
    process()
  File "score.py", line 9, in score
    raise ScoreError(
adacalib.model.score.ScoreError: 3 scores are NaN
repair them first

\tat org.apache.spark.api.python.BasePythonRunner.handle(Runner.scala:1)
"""

JAVA = """An error occurred while calling o31.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.a(A.scala:1)
Caused by: org.apache.spark.SparkException: Task failed
\tat org.apache.spark.b(B.scala:2)
\t... 12 more
Caused by: java.io.IOException: No space left on device
\tat java.base/c(C.java:3)
"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("two faults:\n  - first\n  - second"), "two faults:\n  - first\n  - second"),
        (RuntimeError(WORKER), "3 scores are NaN\nrepair them first"),
        (RuntimeError(JAVA), "java.io.IOException: No space left on device"),
        (RuntimeError("[CAST] 'x' is no number.\n\nJVM stacktrace:\nat a\nat b"), "[CAST] 'x' is no number."),
        (MemoryError(), "MemoryError"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_error_message_has_no_stack_trace(error: BaseException, message: str) -> None:
    assert describe_error(error) == message
