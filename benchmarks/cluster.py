"""Logit cells and bin statistics on one machine's threads, on a cluster in one JVM, and on a standalone cluster.

    python benchmarks/cluster.py --rows 2000000 20000000 --json cluster.json

Each size of a generated table (969 field values, Zipf) is read by the same job under

* local: `local[2]`;
* local-cluster: `local-cluster[2,1,1024]`, two executors of one core each;
* standalone: a master and two workers of one core each, started for it from Spark's own scripts.

The exit code is 1 where the tables differ (numbers by more than 1e-12 of their size; keys and counts at all), or where
the bytes that Spark shuffles grow by more than 1.2 times as much as the cells: they are proportional to field values ×
cells, not to rows.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from lean_run import configure, write_bins, write_cells, write_samples_manifest
from rich.console import Console
from rich.table import Table
from scored_rows import keep_scored_rows
from stage_costs import measure_stage

from adacalib import io
from adacalib.config import SparkConfig

ROOT = Path(__file__).resolve().parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
FIELD_VALUES = 969
MASTERS = {"local": "local[2]", "local-cluster": "local-cluster[2,1,1024]", "standalone": "spark://127.0.0.1"}
KEYS = {
    "logit_cells": ("field_value_id", "cell"),
    "bin_statistics": ("field_value_id", "n_bins_candidate", "bin_index"),
}
TOLERANCE = 1e-12
MAX_SHUFFLE_GROWTH = 1.2
START_LIMIT_S = 60
RUN_LIMIT_S = 1800


class ClusterDidNotStart(RuntimeError):
    """Master or workers did not come up in time."""


def list_differences(one: pa.Table, other: pa.Table, keys: Sequence[str]) -> list[str]:
    """What two tables differ in, order of rows aside; empty where they are the same.

    Args:
        keys: columns that tell the rows apart.
    """
    if one.num_rows != other.num_rows:
        return [f"{one.num_rows} and {other.num_rows} rows"]
    order = [(key, "ascending") for key in keys]
    one, other = one.sort_by(order), other.sort_by(order)
    return [name for name in one.column_names if not _are_equal(one[name], other[name])]


def _are_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(one.type):
        return bool(one.combine_chunks().equals(other.combine_chunks()))
    return np.allclose(one.to_numpy(), other.to_numpy(), rtol=TOLERANCE, atol=0.0, equal_nan=True)


def judge(found: dict[str, dict[int, dict[str, Any]]], differences: dict[str, list[str]]) -> list[tuple[str, bool]]:
    """The bars as text, and whether each holds.

    Args:
        found: master → rows → "cells" and "shuffled" bytes.
        differences: "MASTER, ROWS rows" → what differs from local.
    """
    bars = [
        (f"{name}: {'same tables as local' if not listed else 'differs in ' + ', '.join(listed)}", not listed)
        for name, listed in differences.items()
    ]
    for master, sizes in found.items():
        least, most = min(sizes), max(sizes)
        if least < most:
            shuffled, cells = (sizes[most][key] / sizes[least][key] for key in ("shuffled", "cells"))
            text = f"{master}: rows × {most / least:g}, cells × {cells:.2f}, bytes shuffled × {shuffled:.2f}"
            bars.append((text, shuffled <= MAX_SHUFFLE_GROWTH * cells))
    return bars


@contextmanager
def standalone_cluster() -> Iterator[str]:
    """A master and two workers of one core and 1 GB each, ended with the block; gives the master's address.

    Raises:
        ClusterDidNotStart: within a minute.
    """
    port, spark_class = _find_free_port(), str(SPARK_HOME / "bin" / "spark-class")
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="adacalib-cluster-"))
        commands = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
        worker = [f"{package}.worker.Worker", url, "-c", "1", "-m", "1g", "--host", "127.0.0.1", "--webui-port", "0"]
        commands += [[*worker, "-d", f"{folder}/{i}"] for i in range(2)]
        logs = []
        for i, command in enumerate(commands):
            log = stack.enter_context((Path(folder) / f"{i}.log").open("w"))
            logs.append(Path(log.name))
            process = subprocess.Popen([spark_class, *command], stdout=log, stderr=log, env=_environment())
            stack.callback(_end, process)
        _wait_for_workers(logs[0])
        yield url


def _wait_for_workers(master_log: Path) -> None:
    ends = time.monotonic() + START_LIMIT_S
    while master_log.read_text().count("Registering worker") < 2:
        if time.monotonic() > ends:
            said = master_log.read_text().strip().splitlines()[-1:]
            raise ClusterDidNotStart(f"no two workers within {START_LIMIT_S} s; the master's last word: {said}")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME)}
    return os.environ | own | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_LEVEL": "INFO"}


def run_under(master: str, options: argparse.Namespace) -> dict[str, Any]:
    """The job on every size in a process of its own; gives what it found."""
    out = options.runs_dir / "cluster" / "found.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    sizes = [str(rows) for rows in sorted(options.rows)]
    with standalone_cluster() if master == "standalone" else _nothing(MASTERS[master]) as url:
        command = [sys.executable, __file__, "--rows", *sizes, "--runs-dir", str(options.runs_dir), "--json", str(out)]
        command += ["--master", master, "--url", url]
        subprocess.run(command, check=True, env=_environment(), timeout=RUN_LIMIT_S)
    return {int(rows): figures for rows, figures in io.read_json(out).items()}


@contextmanager
def _nothing(url: str) -> Iterator[str]:
    yield url


def run_job(options: argparse.Namespace) -> None:
    """What runs in a process of its own: both tables of every size, and what they cost."""
    spark = io.start_session(SparkConfig(master=options.url), "benchmark of clusters")
    found = {}
    for rows in options.rows:
        path = keep_scored_rows(spark, options.runs_dir / "scored_rows", rows, FIELD_VALUES)
        config = configure(options.runs_dir / "cluster" / options.master, str(rows), path.resolve(), has_network=False)
        write_samples_manifest(config, rows, FIELD_VALUES)
        with measure_stage(spark) as cost:
            cells = write_cells(spark.read.parquet(str(path.resolve())), config, rows, FIELD_VALUES)
            write_bins(spark, config, rows, FIELD_VALUES)
        found[rows] = {**asdict(cost), "cells": cells, "executors": _count_executors(spark)}
    spark.stop()
    io.write_json(options.json, found)


def _count_executors(spark: Any) -> int:
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _read(options: argparse.Namespace, master: str, rows: int, table: str) -> pa.Table:
    return pq.read_table(options.runs_dir / "cluster" / master / str(rows) / "tables" / table)


def make_table(found: dict[str, dict[int, dict[str, Any]]]) -> Table:
    """A row per master and size."""
    table = Table(box=None, pad_edge=False)
    for heading in ("master", "executors", "rows", "cells", "seconds", "read MB", "shuffled MB", "to driver MB"):
        table.add_column(heading, justify="left" if heading == "master" else "right", no_wrap=True)
    for master, sizes in found.items():
        for rows, figures in sizes.items():
            megabytes = [f"{figures[name] / 1e6:.1f}" for name in ("read", "shuffled", "to_driver")]
            head = [MASTERS[master], f"{figures['executors']}", f"{rows:,}", f"{figures['cells']:,}"]
            table.add_row(*head, f"{figures['seconds']:.1f}", *megabytes)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    if options.url is not None:
        run_job(options)
        return 0
    console = Console()
    found = {}
    for master in MASTERS:
        console.print(f"{MASTERS[master]} …", highlight=False)
        found[master] = run_under(master, options)
    differences = {}
    for master in list(MASTERS)[1:]:
        for rows in sorted(options.rows):
            differences[f"{master}, {rows:,} rows"] = [
                f"{table}.{name}"
                for table, keys in KEYS.items()
                for name in list_differences(
                    _read(options, "local", rows, table), _read(options, master, rows, table), keys
                )
            ]
    console.print(make_table(found))
    bars = judge(found, differences)
    for text, holds in bars:
        console.print(f"{'[green]holds[/green]' if holds else '[red]fails[/red]'}  {text}", highlight=False)
    options.json.write_text(json.dumps({"found": found, "differences": differences}, indent=1) + "\n")
    return 0 if all(holds for _, holds in bars) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", required=True, help="sizes, from 200,000")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    parser.add_argument("--master", choices=MASTERS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
