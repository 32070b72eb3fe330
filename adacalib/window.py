"""The stored days of a run with `window`: one folder of logit cells per day, which later runs are fitted on.

A run stores the cells of all its days, test days too, by the raw field value. It is fitted on the stored days before
its test days, its own among them, so that it reads no rows but its own. A day that comes again replaces its own folder.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io
from adacalib.config import RunConfig
from adacalib.manifest import MANIFEST, read_manifest
from adacalib.schemas import DAY_CELLS

log = logging.getLogger("adacalib")


class WindowError(ValueError):
    """The stored days do not fit the run; the message names them and the next step."""


@dataclass(frozen=True)
class Window:
    """The days that a run is fitted on.

    Attributes:
        folder: of the stored days.
        first, last: days, both within.
        own: days within that the run has rows of.
        stored: day → digest of its cells, of the other days within that are stored.
    """

    folder: Path
    first: date
    last: date
    own: tuple[date, ...]
    stored: dict[date, str]

    @property
    def missing(self) -> tuple[date, ...]:
        """Days within that are not there."""
        days = (self.first + timedelta(days=i) for i in range((self.last - self.first).days + 1))
        return tuple(day for day in days if day not in self.stored and day not in self.own)

    @property
    def digest(self) -> str:
        """Tells one set of days and cells from another; the run's own rows are not in it."""
        listed = [str(self.first), str(self.last), *(f"{day} {self.stored[day]}" for day in sorted(self.stored))]
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """For a manifest (JSON)."""
        return {
            "first": str(self.first),
            "last": str(self.last),
            "own_days": len(self.own),
            "stored_days": len(self.stored),
            "missing_days": [str(day) for day in self.missing],
            "digest": self.digest,
        }

    def read_stored(self, spark: SparkSession) -> DataFrame | None:
        """Cells of the stored days; None where there are none."""
        return self._read(spark, sorted(self.stored))

    def read_all(self, spark: SparkSession) -> DataFrame | None:
        """Cells of the stored days and of the run's own, once these are published; None where there are none."""
        return self._read(spark, sorted([*self.stored, *self.own]))

    def _read(self, spark: SparkSession, days: Sequence[date]) -> DataFrame | None:
        return io.read_folders(spark, [self.folder / str(day) for day in days], DAY_CELLS) if days else None


def find_window(rows: DataFrame, config: RunConfig) -> Window:
    """The days before the run's test days, as far as they are stored or its own.

    Args:
        rows: of the run, with split and date.

    Raises:
        WindowError: no day is there to fit on, or a stored one is of another model, label, score or field.
    """
    assert config.window is not None
    found = rows.groupBy("date").agg(F.max((F.col("split") == "test").cast("int")).alias("is_test")).collect()
    own = {row["date"]: row["is_test"] for row in found}  # bounded by days
    last = min(day for day, is_test in own.items() if is_test) - timedelta(days=1)
    first = last - timedelta(days=config.window.days - 1)
    folder = Path(config.window.path)
    days = [first + timedelta(days=i) for i in range(config.window.days)]
    manifests = {
        day: read_manifest(folder / str(day))
        for day in days
        if day not in own and (folder / str(day) / MANIFEST).is_file()
    }
    _check_days(manifests, config)
    window = Window(
        folder=folder,
        first=first,
        last=last,
        own=tuple(sorted(day for day in own if first <= day <= last)),
        stored={day: facts["digest"] for day, facts in manifests.items()},
    )
    if not window.own and not window.stored:
        raise WindowError(
            f"window: no day from {first} to {last} is stored in {folder}, and the input has rows of none; run the "
            "days before, the earliest with split.test_days such that some are left to fit on"
        )
    if window.missing:
        listed = ", ".join(map(str, window.missing[:5])) + (", …" if len(window.missing) > 5 else "")
        log.warning("window: %d of %d days are not there (%s)", len(window.missing), config.window.days, listed)
    return window


def _check_days(manifests: dict[date, dict[str, Any]], config: RunConfig) -> None:
    wanted = {"predictor_fingerprint": config.input.score_version, "cells": config.describe_cells()}
    what = {"predictor_fingerprint": "another model (input.score_version)", "cells": "another label, score or field"}
    faults = []
    for key, value in wanted.items():
        if other := {day: facts.get(key) for day, facts in manifests.items() if facts.get(key) != value}:
            listed = ", ".join(f"{day} ({found})" for day, found in sorted(other.items())[:5])
            faults.append(f"{len(other)} stored day(s) of {what[key]} than {value}: {listed}")
    if faults:
        raise WindowError(
            f"window: {'; '.join(faults)}. Run those days again with this configuration, or give the new one a "
            "window.path of its own"
        )


def publish_days(cells: DataFrame, config: RunConfig, predictor_fingerprint: str) -> None:
    """Stores the cells of each day in a folder of its own, which replaces the day's former one.

    Args:
        cells: as of `day_cells.drop_ids`, of all days of the run.
    """
    assert config.window is not None
    cells = cells.persist(StorageLevel.DISK_ONLY)
    try:
        row = F.xxhash64(*(F.col(name) for name in DAY_CELLS.fieldNames())).cast("decimal(38,0)")
        is_main = F.col("field") == config.field
        sums = (F.sum(row).alias("digest"), F.sum(F.when(is_main, F.col("n_samples")).otherwise(0)).alias("n_samples"))
        days = cells.groupBy("date").agg(*sums).orderBy("date").collect()  # bounded by days
        for day in days:
            facts = {
                "date": str(day["date"]),
                "n_samples": day["n_samples"],
                "digest": f"{int(day['digest']) % 2**64:016x}",
                "predictor_fingerprint": predictor_fingerprint,
                "cells": config.describe_cells(),
                "fields": list(config.fields),
            }
            own = cells.filter(F.col("date") == F.lit(day["date"]))
            io.publish_table(own, Path(config.window.path) / str(day["date"]), DAY_CELLS, facts=facts)
    finally:
        cells.unpersist()
