"""What a stage costs: seconds, memory of this process and all below it, and what Spark read, wrote and sent about."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from pyspark.sql import SparkSession

SAMPLE_EVERY_S = 0.2
LISTENER_WAIT_MS = 60_000


@dataclass
class StageCost:
    """Figures of one stage, complete when it has ended.

    Attributes:
        seconds: wall clock.
        peak_memory: bytes resident at most, of this process and all that it started (JVM, Python workers, ranks);
            looked at five times a second, and pages that processes share count in each.
        read, written: bytes of files.
        shuffled: bytes that Spark's tasks wrote for others to read.
        to_driver: bytes of results that tasks sent to the driver.
    """

    seconds: float = 0.0
    peak_memory: int = 0
    read: int = 0
    written: int = 0
    shuffled: int = 0
    to_driver: int = 0


@contextmanager
def measure_stage(spark: SparkSession) -> Iterator[StageCost]:
    """Measures what runs inside; Spark's figures are of all stages that began in the meantime."""
    cost, ended = StageCost(), threading.Event()
    watcher = threading.Thread(target=_watch_memory, args=(cost, ended), daemon=True)
    before = _read_stage_ids(spark)
    started = time.monotonic()
    watcher.start()
    try:
        yield cost
    finally:
        cost.seconds = time.monotonic() - started
        ended.set()
        watcher.join()
    for stage in _list_stages(spark):
        if stage.stageId() not in before:
            cost.read += stage.inputBytes()
            cost.written += stage.outputBytes()
            cost.shuffled += stage.shuffleWriteBytes()
            cost.to_driver += stage.resultSize()


def measure_memory() -> int:
    """Bytes resident now, of this process and all below it."""
    me = psutil.Process()
    total = 0
    for process in (me, *me.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:  # ended since it was listed
            continue
    return total


def _watch_memory(cost: StageCost, ended: threading.Event) -> None:
    while True:
        cost.peak_memory = max(cost.peak_memory, measure_memory())
        if ended.wait(SAMPLE_EVERY_S):
            return


def _read_stage_ids(spark: SparkSession) -> set[int]:
    return {stage.stageId() for stage in _list_stages(spark)}


def _list_stages(spark: SparkSession) -> list:  # type: ignore[type-arg]  # of Java objects, v1.StageData
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(LISTENER_WAIT_MS)
    gateway = spark.sparkContext._gateway
    nothing, no_quantiles = gateway.jvm.java.util.ArrayList(), gateway.new_array(gateway.jvm.double, 0)
    stages = context.statusStore().stageList(nothing, False, False, no_quantiles, nothing)
    return [stages.apply(i) for i in range(stages.size())]
