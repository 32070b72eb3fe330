"""(world, number of rows, seed) → a folder of Parquet files: a raw table whose truth is known.

Reads nothing.
Writes the folder (one row per row_id; columns: adacalib.stats.world_rows.WORLD_ROWS) with `_world.json`, which says
       what made it. The folder is written beside its place and renamed into it: it is there whole or not at all.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import time
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from adacalib import io
from adacalib.stats.world_rows import count_tasks, make_world_rows
from adacalib.worlds.rows import make_world

FACTS = "_world.json"

log = logging.getLogger("adacalib")


def run(spark: SparkSession, world: str, rows: int, seed: int, path: str | Path) -> None:
    """Generates the rows 0 … rows − 1 of a world; a world that is there already is replaced.

    Raises:
        UnknownWorld: with the nearest name.
        ValueError: no rows, a negative seed, or a path where something else than a generated world is.
    """
    if rows < 1:
        raise ValueError(f"rows {rows}: a world needs at least one row; give 1 or more")
    made = make_world(world, seed)
    ids = spark.range(0, rows, 1, count_tasks(rows, spark.sparkContext.defaultParallelism))
    _publish(make_world_rows(ids, made), Path(path), {"world": world, "rows": rows, "seed": seed})


def _publish(frame: DataFrame, path: Path, facts: dict[str, str | int]) -> None:
    if path.exists() and not (path / FACTS).is_file():
        raise ValueError(f"{path}: is there and is no generated world, so it is not replaced; give another path")
    started = time.monotonic()
    for leftover in path.parent.glob(f".{path.name}.*"):  # of a writer that was killed
        shutil.rmtree(leftover)
    staging = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        frame.write.mode("error").parquet(str(staging))
        io.write_json(staging / FACTS, facts)
        if path.exists():
            shutil.rmtree(path)
        staging.rename(path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    log.info("wrote %s: %s rows in %.1f s", path, f"{facts['rows']:,}", time.monotonic() - started)


def main(arguments: list[str] | None = None) -> None:
    """Entry point under spark-submit."""
    parser = argparse.ArgumentParser(prog="generate.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--world", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, help="folder to write, on a disk that all machines share")
    given = parser.parse_args(arguments)
    with io.submitted_session(f"generate {given.world}") as session:
        run(session, given.world, given.rows, given.seed, given.out)


if __name__ == "__main__":
    main()
