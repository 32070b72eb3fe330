"""The only file that knows sessions, paths, formats and publishing.

A table of a run is the folder `runs/NAME/tables/TABLE` with Parquet files and `_manifest.json` (rows, what was counted
on the way, the predictor's fingerprint). It is written beside its place and renamed into it, so a reader sees a whole
table or none.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType, StructType

from adacalib import manifest
from adacalib.config import InputConfig, RunConfig, SparkConfig
from adacalib.job_arguments import read_job_config
from adacalib.schemas import check_schema

log = logging.getLogger("adacalib")

_SPARK_CONF_DIR = Path(__file__).resolve().parent.parent / "spark_conf"


class InputError(ValueError):
    """The input cannot be read or is refused; the message names the path and the next step."""


def start_session(settings: SparkConfig, name: str) -> SparkSession:
    """Starts Spark in this process, for what is started from the command line.

    Args:
        settings: master and properties file.
        name: what Spark's own pages call it.

    Raises:
        InputError: Spark did not start; the message says what to look at.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(_SPARK_CONF_DIR))  # log4j2.properties there keeps the terminal quiet
    builder = SparkSession.Builder().master(settings.master).appName(f"adacalib {name}")
    for key, value in read_spark_conf(settings.conf).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        raise InputError(
            f"Spark did not start with spark.master {settings.master!r}; local[*], local[2] or spark://HOST:PORT "
            "are masters, and `adacalib doctor` says whether Java fits"
        ) from error
    # errors reach the user once, as the exception's message, and not before it as task logs
    session.sparkContext.setLogLevel("FATAL")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session


def read_spark_conf(path: str | None) -> dict[str, str]:
    """Reads a Spark properties file (`key value` or `key=value` a line, # comments); default spark_conf/local.conf."""
    file = Path(path) if path else _SPARK_CONF_DIR / "local.conf"
    if not file.is_file():
        raise InputError(f"{file}: there is no such Spark properties file; set spark.conf to one")
    settings = {}
    for line in file.read_text().splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            # the first blank or "=" ends the key; one inside the value (a Java option's) is the value's own
            key, *value = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
            settings[key] = "".join(value)
    return settings


def run_job(run: Callable[[SparkSession, RunConfig], None]) -> None:
    """Entry point of a Spark job under spark-submit: parses --config and --set, takes the submitted session."""
    config = read_job_config(sys.modules[run.__module__].__doc__)
    with submitted_session(f"{config.name} {run.__module__}") as session:
        run(session, config)


@contextmanager
def submitted_session(name: str) -> Iterator[SparkSession]:
    """The session of a program that spark-submit started, with log lines on the terminal; stopped at the end.

    Args:
        name: what Spark's own pages call it.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.Builder().appName(f"adacalib {name}").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def table_path(config: RunConfig, table: str) -> Path:
    """Folder of a table of the run."""
    return config.run_dir / "tables" / table


def read_table(spark: SparkSession, config: RunConfig, table: str, schema: StructType) -> DataFrame:
    """Reads a table of the run with its stated schema.

    Raises:
        TableMissing: the table is not there.
        SchemaError: its columns or types differ from the schema.
    """
    return read_folders(spark, [manifest.find_table(config, table)], schema)


def read_folders(spark: SparkSession, paths: Sequence[Path], schema: StructType) -> DataFrame:
    """Reads one or more tables of one schema, as `publish_table` wrote them; see `read_table` for the errors."""
    frame = spark.read.parquet(*(str(_check_whole(path)) for path in paths))
    check_schema(frame.schema, schema, str(paths[0]))
    return frame.select(*schema.fieldNames())


def read_arrow(config: RunConfig, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a table that is bounded by field values × bins into memory, without Spark."""
    path = _check_whole(manifest.find_table(config, table))
    files = sorted(str(file) for file in path.rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, columns=columns) for file in files])


def read_manifest(config: RunConfig, table: str) -> dict[str, Any]:
    """The JSON written beside a table: rows, counts, fingerprints."""
    return manifest.read_manifest(manifest.find_table(config, table))


def write_table(
    frame: DataFrame,
    config: RunConfig,
    table: str,
    schema: StructType,
    *,
    partition_by: str | None = None,
    facts: dict[str, Any] | None = None,
) -> int:
    """Publishes a table of the run; see `publish_table`.

    Args:
        partition_by: column that becomes folders (`split=train`).
        facts: what the table's readers must know besides its rows; goes into the manifest.

    Returns:
        The number of rows written.
    """
    return publish_table(frame, table_path(config, table), schema, partition_by=partition_by, facts=facts)


def publish_table(
    frame: DataFrame,
    path: Path,
    schema: StructType,
    *,
    partition_by: str | None = None,
    facts: dict[str, Any] | None = None,
) -> int:
    """Publishes a table whole: written beside its place with its manifest, then renamed into it.

    Args and result: see `write_table`.
    """
    check_schema(frame.schema, schema, path.name)
    started = time.monotonic()
    for leftover in path.parent.glob(f".{path.name}.*"):  # of a writer that was killed
        shutil.rmtree(leftover)
    staging = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    rows = Observation()
    counted = frame.select(*schema.fieldNames()).observe(rows, F.count(F.lit(1)).alias("rows"))
    writer = counted.write.mode("error").options(**_plain_columns(schema))
    try:
        (writer.partitionBy(partition_by) if partition_by else writer).parquet(str(staging))
        n_rows = int(rows.get["rows"])
        write_json(staging / manifest.MANIFEST, {"table": path.name, "rows": n_rows, **(facts or {})})
        _replace(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    log.info("wrote %s: %s rows in %.1f s", path, f"{n_rows:,}", time.monotonic() - started)
    return n_rows


def _plain_columns(schema: StructType) -> dict[str, str]:
    """Parquet options: no dictionary for columns whose values as a rule hardly repeat, standardised features too.

    One would be built, column by column, and thrown away.
    """
    columns = []
    for field in schema:
        if isinstance(field.dataType, ArrayType):
            if isinstance(field.dataType.elementType, FloatType):
                columns.append(f"{field.name}.list.element")
        elif field.name == "sample_id" or field.name.endswith(("_logit", "_score", "_probability")):
            columns.append(field.name)
    return {f"parquet.enable.dictionary#{column}": "false" for column in columns}


def write_json(path: Path, document: Any) -> None:
    """Writes JSON beside its place and renames it into it. NaN is refused: it is no JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        staging.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """A JSON document.

    Raises:
        InputError: it is not there, or is no JSON.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); run the stage that writes it again") from error


def read_input(spark: SparkSession, config: RunConfig) -> DataFrame:
    """Reads the raw table of a run.

    Raises:
        InputError: nothing is there, the package is not installed, or Spark cannot read the files.
    """
    path = _resolve_input(config.input, config.run_dir)
    try:
        if config.input.format == "csv":
            options: dict[str, Any] = {
                "header": True,
                "inferSchema": True,
                "mode": "FAILFAST",
                "nullValue": config.input.null_value,
            }
            return spark.read.options(**options).csv(path)
        return spark.read.parquet(path)
    except (PySparkException, Py4JJavaError) as error:  # the latter where the only file's footer is broken
        raise unreadable_input(config, error) from error


def unreadable_input(config: RunConfig, error: Exception) -> InputError:
    """Turns an error that Spark raised while it read the input into one line with the file and the next step."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    if any("OutOfMemoryError" in line for line in lines):
        return InputError(
            f"{config.input.path}: Spark ran out of memory while it read it; raise spark.driver.memory in the file of "
            "spark.conf (on a cluster spark.executor.memory), then run prepare_samples again."
        )
    telling = ("FAILED_READ_FILE", "not a Parquet file", "Malformed", "MALFORMED", "UNABLE_TO_INFER", "PATH_NOT_FOUND")
    found = next((line for word in telling for line in lines if word in line), None)
    if found is not None and "PATH_NOT_FOUND" in found:
        return InputError(f"input.path {config.input.path}: nothing is there; give a file, folder or glob that exists")
    if found is None:
        return InputError(
            f"{config.input.path}: an expression of the configuration fails on it: {lines[0][:400]} "
            "Correct the expression (or input.null_value of a CSV file), then run prepare_samples again."
        )
    return InputError(
        f"{config.input.path}: cannot be read as {config.input.format}: {found[:400]} "
        "Repair or remove that file, or correct input.path and input.format, then run prepare_samples again."
    )


def _resolve_input(config: InputConfig, run_dir: Path) -> str:
    path = config.path
    if path.startswith("package:"):
        package, _, inner = path.removeprefix("package:").partition("/")
        spec = importlib.util.find_spec(package)  # found, never imported: its import may want what is not there
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"input.path {path}: package {package} is not installed; pip install {package}")
        path = str(Path(spec.submodule_search_locations[0]) / inner)
    if "://" in path or any(character in path for character in "*?["):
        return path
    if not Path(path).exists():
        raise InputError(f"input.path {path}: nothing is there; give a file, folder or glob that exists")
    if path.endswith(".zip"):
        target = run_dir / "input"
        with zipfile.ZipFile(path) as archive:
            inner_names = [n for n in archive.namelist() if not n.endswith("/") and not n.startswith("__MACOSX/")]
            if len(inner_names) != 1:
                raise InputError(f"input.path {path}: an archive of {len(inner_names)} files; it must hold one table")
            return archive.extract(inner_names[0], target)
    return path


def _check_whole(path: Path) -> Path:
    """The folder of a table, whose files hold as many rows as its manifest says; footers only are read."""
    written = manifest.read_manifest(path)["rows"]
    files = [file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_"))]
    try:
        rows = sum(pq.read_metadata(file).num_rows for file in files)
    except (OSError, pa.ArrowException) as error:
        raise manifest.TableMissing(
            f"{path}: a file cannot be read ({error}); run the stage that writes it again"
        ) from error
    if rows != written:
        raise manifest.TableMissing(
            f"{path}: {rows:,} rows in its files, {written:,} were written; run the stage that writes it again"
        )
    return path


def _replace(staging: Path, path: Path) -> None:
    """Renames a finished folder into its place; what stood there goes only after the new one is complete."""
    if path.exists():
        old = path.parent / f".{path.name}.old.{uuid.uuid4().hex}"
        path.rename(old)
        try:
            staging.rename(path)
        except OSError:
            old.rename(path)  # what stood there still does
            raise
        shutil.rmtree(old)
    else:
        staging.rename(path)
