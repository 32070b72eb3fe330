"""The examples in the docstrings of column functions are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import adacalib.stats

MODULES = sorted(module.name for module in pkgutil.iter_modules(adacalib.stats.__path__))
WITH_EXAMPLES = {"feature_encodings", "logit_cells", "own_scores", "samples"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(spark: SparkSession, name: str) -> None:
    module = importlib.import_module(f"adacalib.stats.{name}")
    result = doctest.testmod(module, extraglobs={"spark": spark, "F": F})
    assert result.failed == 0
    assert (result.attempted > 0) == (name in WITH_EXAMPLES)
