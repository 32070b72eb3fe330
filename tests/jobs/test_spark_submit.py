"""One job through spark-submit in local mode: the same table, and an exit code that tells the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.io import write_json
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import draw_world, make_config, run_stages, write_input

ROOT = Path(__file__).parent.parent.parent
KEY = ["field", "field_value_id", "cell"]


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("submit")
    write_input(folder, draw_world(300))
    changes = {"fields": ["shop", "town"], "input": {"weight": "w"}}
    return run_stages(spark, make_config(folder, changes), until="build_logit_cells")


def submit(config: RunConfig, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submits the job and waits; spark-submit merges the Python process's stderr into stdout."""
    config_path = config.run_dir / "effective_config.json"
    write_json(config_path, config.model_dump(mode="json"))
    command = [Path(pyspark.__path__[0]) / "bin" / "spark-submit", "--master", "local[2]"]
    command += ["--properties-file", ROOT / "spark_conf" / "local.conf", "--driver-memory", "1g"]
    command += [ROOT / "jobs" / "build_logit_cells.py", "--config", config_path, *arguments]
    # a submitted job finds our package on PYTHONPATH; what this process is told about Spark must not leak into it
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    environment = inherited | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(ROOT / "spark_conf"),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_submitted_job_writes_the_same_table(spark: SparkSession, prepared: RunConfig) -> None:
    before = collect_rows(io.read_table(spark, prepared, "logit_cells", schemas.LOGIT_CELLS))
    folder = io.table_path(prepared, "logit_cells")
    old = {file.name for file in folder.rglob("*.parquet")}
    done = submit(prepared)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not old & {file.name for file in folder.rglob("*.parquet")}  # written anew
    assert_table(io.read_table(spark, prepared, "logit_cells", schemas.LOGIT_CELLS), before, KEY, rtol=1e-12)
    assert f"wrote {folder}: {len(before)} rows" in done.stdout
    assert "py4j" not in done.stdout  # one log line per table, not one per call into the JVM


def test_submitted_jobs_failure_is_a_failure_with_its_message(prepared: RunConfig) -> None:
    done = submit(prepared, "--set", "name=never_prepared")
    assert done.returncode != 0
    assert "table scored_samples is not there; run `adacalib score_samples` first" in done.stdout
    assert not (prepared.run_dir.parent / "never_prepared").exists()
