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
spark.driver.extraJavaOptions                       -XX:TieredStopAtLevel=1
# More than one partition, so that partial aggregates are merged and rows of one group come from several tasks.
spark.sql.shuffle.partitions                        3
# Without this the adaptive planner makes one partition of three small ones.
spark.sql.adaptive.coalescePartitions.enabled       false
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
