"""Launches ranks under TorchDistributor: MASTER, then configuration files; prints one JSON line per launch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from adacalib.launch import TrainingFailed, launch


def main(arguments: Sequence[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    master, *configs = arguments
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for config in configs:
        try:
            launch("tests.launch_victim", config, 2, "torch_distributor", spark)
            outcome = "well"
        except TrainingFailed as error:
            outcome = str(error)
        print("\n" + json.dumps({"outcome": outcome}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
