"""The four files of Ali-CCP → one table of impressions, as `configs/ali_ccp.yaml` takes it.

Reads RAW: sample_skeleton_{train,test}.csv and common_features_{train,test}.csv as they were downloaded, or .csv.gz.
Writes OUT:
    samples        one row per good impression; columns: adacalib.stats.ali_ccp.SAMPLE_COLUMNS
    rejects        one row per distinct faulty line: its file, its reasons, the line itself, how often it occurs
    ali_ccp.json   lines, samples and faults per file, missing and repeated fields, samples and labels per split
OUT is written beside its place and renamed into it: it is there whole or not at all. Features are picked from the
common lines before they are joined, and the join is shuffled, so any number of rows goes through any number of
executors; the driver sees counts only. RAW may be a URI (hdfs://…), OUT is a path that all machines share.
"""

from __future__ import annotations

import argparse
import functools
import logging
import math
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from adacalib import io
from adacalib.stats import ali_ccp

FILES = ("sample_skeleton", "common_features")
MANIFEST = "ali_ccp.json"
BROADCAST_LIMIT = 2_000_000
"""Faulty ids up to which they are sent to every executor."""

ROWS_PER_FILE = 500_000

WARN_SHARE = 0.01
"""Above this share of faulty lines of one file the log warns."""

log = logging.getLogger("adacalib")


def run(spark: SparkSession, raw_dir: str | Path, out_dir: str | Path, seed: int) -> None:
    """Writes OUT; a former one is replaced.

    Args:
        raw_dir: folder or URI of the four files.
        out_dir: local or shared folder.
        seed: deals the train half to train and dev.

    Raises:
        InputError: a file is missing or unreadable, a split ends up empty, or OUT is something else.
    """
    out = Path(out_dir)
    if out.exists() and not (out / MANIFEST).is_file():
        raise io.InputError(f"{out}: is there and was not written by this job, so it is not replaced; give another")
    skeleton_lines, common_lines = (_read_lines(spark, str(raw_dir), name) for name in FILES)
    out.parent.mkdir(parents=True, exist_ok=True)
    for leftover in out.parent.glob(f".{out.name}.*"):  # of a writer that was killed
        shutil.rmtree(leftover)
    staging = out.parent / f".{out.name}.{uuid.uuid4().hex}"
    try:
        manifest = _write_tables(spark, skeleton_lines, common_lines, staging, seed)
        check_counts(manifest, str(raw_dir))
        io.write_json(staging / MANIFEST, {"raw": str(raw_dir), "seed": seed, **manifest})
        if out.exists():
            shutil.rmtree(out)
        staging.rename(out)
    except (PySparkException, Py4JJavaError) as error:
        raise io.InputError(f"{raw_dir}: cannot be read: {_find_cause(error)} Download that file again.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _read_lines(spark: SparkSession, raw_dir: str, name: str) -> DataFrame:
    """half and line of a file's two halves."""
    halves = []
    for half in ali_ccp.HALVES:
        path = _find_file(raw_dir, f"{name}_{half}.csv")
        try:
            halves.append(spark.read.text(path).select(F.lit(half).alias("half"), F.col("value").alias("line")))
        except PySparkException as error:
            raise io.InputError(f"{path}: cannot be read: {_find_cause(error)}") from error
    return functools.reduce(DataFrame.unionAll, halves)


def _find_file(raw_dir: str, name: str) -> str:
    if "://" in raw_dir:
        return f"{raw_dir}/{name}{{,.gz}}"  # a pattern: Spark says when nothing fits it
    found = [path for path in (Path(raw_dir) / name, Path(raw_dir) / f"{name}.gz") if path.exists()]
    if len(found) != 1:
        has = "both are there; remove one" if found else "neither is there; unpack the downloaded archives there"
        raise io.InputError(f"{Path(raw_dir) / name} or {name}.gz: {has}")
    return str(found[0])


def _write_tables(
    spark: SparkSession, skeleton_lines: DataFrame, common_lines: DataFrame, folder: Path, seed: int
) -> dict[str, Any]:
    """Writes both tables; returns the manifest's counts."""
    common = ali_ccp.parse_common(common_lines).persist(StorageLevel.DISK_ONLY)
    seen, several = Observation(), Observation()
    halves = [F.count_if(F.col("half") == half).alias(half) for half in ali_ccp.HALVES]
    counted = ali_ccp.parse_skeleton(skeleton_lines.observe(seen, *halves))
    repeated = ali_ccp.find_repeated(counted, "sample_id").persist(StorageLevel.DISK_ONLY)
    skeleton = ali_ccp.parse_skeleton(skeleton_lines)
    orphans = ali_ccp.find_orphans(skeleton, common).persist(StorageLevel.DISK_ONLY)
    try:
        for faulty, reason in ((repeated, ali_ccp.REPEATED_SAMPLE), (orphans, ali_ccp.NO_COMMON_LINE)):
            skeleton = ali_ccp.add_reason(skeleton, faulty, reason, faulty.count() <= BROADCAST_LIMIT)
        n_lines = {f"sample_skeleton_{half}": n for half, n in seen.get.items()}
        n_partitions = math.ceil(sum(n_lines.values()) / ROWS_PER_FILE) or 1
        samples = ali_ccp.build_samples(skeleton, common, seed, n_partitions).observe(several, *ali_ccp.count_several())
        _write(samples.drop("several"), folder / "samples")
        _write(ali_ccp.build_rejects(skeleton, common), folder / "rejects")
        n_lines |= {f"common_features_{row['half']}": row["count"] for row in common.groupBy("half").count().collect()}
    finally:
        for frame in (orphans, repeated, common):
            frame.unpersist()
    counts = _count_tables(spark, folder, n_lines)
    return {**counts, "repeated_fields": {name: n for name, n in several.get.items() if n}}


def _write(frame: DataFrame, path: Path) -> None:
    started = time.monotonic()
    rows = Observation()
    frame.observe(rows, F.count(F.lit(1)).alias("n")).write.mode("error").parquet(str(path))
    log.info(
        "wrote %s of %s: %s rows in %.1f s", path.name, path.parent, f"{rows.get['n']:,}", time.monotonic() - started
    )


def _count_tables(spark: SparkSession, folder: Path, n_lines: dict[str, int]) -> dict[str, Any]:
    """What was written, read back: per file lines and faults, per split samples, labels and missing features."""
    files: dict[str, Any] = {
        f"{name}_{half}": {"n_lines": n_lines.get(f"{name}_{half}", 0), "n_rejected": 0, "reasons": {}}
        for name in FILES
        for half in ali_ccp.HALVES
    }
    rejects = spark.read.parquet(str(folder / "rejects")).groupBy("file", "reason").agg(F.sum("n_rows").alias("n"))
    for row in rejects.orderBy("file", "reason").collect():  # bounded by the kinds of faults
        file = files[row["file"]]
        file["n_rejected"] += row["n"]
        for reason in row["reason"].split("; "):
            file["reasons"][reason] = file["reasons"].get(reason, 0) + row["n"]
    splits = {}
    for row in ali_ccp.count_samples(spark.read.parquet(str(folder / "samples"))).collect():
        counts = row.asDict()
        missing = {name: counts[f"missing__{name}"] for name in ali_ccp.FEATURES if counts[f"missing__{name}"]}
        labels = {name: counts[name] for name in ("n_samples", "n_clicks", "n_conversions")}
        splits[counts["split"]] = {**labels, "missing": missing}
    return {"files": files, "splits": splits}


def check_counts(manifest: dict[str, Any], raw_dir: str) -> None:
    """Every line must be a sample or a reject, and every split must have samples; many faults are warned of.

    Raises:
        InputError: a split is empty, or lines got lost because a file changed between two readings.
    """
    files, splits = manifest["files"], manifest["splits"]
    for name, counts in files.items():
        if counts["n_rejected"] > WARN_SHARE * counts["n_lines"]:
            log.warning(
                "%s: %s of %s lines are faulty: %s", name, counts["n_rejected"], counts["n_lines"], counts["reasons"]
            )
    if empty := [split for split in ("train", "dev", "test") if split not in splits]:
        faults = "".join(f"\n  - {name}: {counts}" for name, counts in files.items())
        raise io.InputError(f"{raw_dir}: no usable impression for {', '.join(empty)}; lines and faults:{faults}")
    for half, names in (("train", ("train", "dev")), ("test", ("test",))):
        counts = files[f"sample_skeleton_{half}"]
        n_samples = sum(splits[name]["n_samples"] for name in names)
        if n_samples + counts["n_rejected"] != counts["n_lines"]:
            raise io.InputError(
                f"sample_skeleton_{half}: {counts['n_lines']:,} lines became {n_samples:,} samples and "
                f"{counts['n_rejected']:,} rejects; a file changed while it was read, so run again"
            )


def _find_cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    return next((line for line in lines if line.startswith("Caused by:")), lines[0])[:400]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="prepare_ali_ccp.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--raw", required=True, help="folder or URI of the four files")
    parser.add_argument("--out", required=True, help="folder to write, on a disk that all machines share")
    parser.add_argument("--seed", type=int, default=1, help="deals the train half to train and dev")
    given = parser.parse_args(arguments)
    with io.submitted_session("prepare_ali_ccp") as session:
        run(session, given.raw, given.out, given.seed)


if __name__ == "__main__":
    main()
