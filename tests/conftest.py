"""The one Spark session of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from adacalib.config import SparkConfig
from adacalib.io import start_session

SPARK_CONF = Path(__file__).parent.parent / "spark_conf" / "local.conf"

# Later lines of a properties file win over earlier ones; each has its reason.
TEST_SETTINGS = """
# The rows of a test are few.
spark.driver.memory                                 2g
# A JVM of minutes gains nothing from the optimising compiler, which takes the cores away from the tests.
# The serial collector leaves the other core alone.
spark.driver.extraJavaOptions                       -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# More than one partition, so that partial aggregates are merged and rows of one group come from several tasks.
spark.sql.shuffle.partitions                        3
# Without this the adaptive planner makes one partition of three small ones.
spark.sql.adaptive.coalescePartitions.enabled       false
# A query over few rows is over before its code is generated and compiled, or planned anew: two fifths of the CPU time.
# The fixture as_in_a_run takes these three back.
spark.sql.codegen.wholeStage                        false
spark.sql.codegen.factoryMode                       NO_CODEGEN
spark.sql.adaptive.enabled                          false
# Plans of finished queries are no use to anybody: the heap stays small over the whole suite.
spark.ui.retainedJobs                               10
spark.sql.ui.retainedExecutions                     10
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as a run starts it (spark_conf/local.conf: UTC, ANSI, no UI), with two cores and three partitions."""
    conf = tmp_path_factory.mktemp("spark") / "tests.conf"
    conf.write_text(SPARK_CONF.read_text() + TEST_SETTINGS)
    session = start_session(SparkConfig(master="local[2]", conf=str(conf)), "tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def as_in_a_run(spark: SparkSession) -> Iterator[None]:
    """Generated code and adaptive plans, which the other tests do without."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled")
    of_tests = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, ("true", "FALLBACK", "true"), strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in of_tests.items():
        spark.conf.set(name, value)
