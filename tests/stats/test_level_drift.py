"""Global calibrations of dev and of train ∪ dev on the test days."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from adacalib.config import RunConfig, parse_config
from adacalib.stats.evaluation_sums import collect_cells
from adacalib.stats.level_drift import measure_level_drift
from adacalib.stats.logit_cells import build_logit_cells
from tests.stats.small_samples import draw_samples, make_samples, make_values


def make_config(**changes: Any) -> RunConfig:
    content: dict[str, Any] = {
        "name": "drift",
        "input": {"path": "x.parquet", "label": "y", "date": "day"},
        "fields": ["f"],
        "features": {"numeric": {"a": "a"}},
        "split": {"by": "date", "train": 0.4, "dev": 0.4, "test": 0.2},
    }
    return parse_config({**content, **changes})


def test_the_days_before_know_more_than_all_days_where_the_level_moved(spark: SparkSession) -> None:
    # half of the rows respond in train; one in five in dev and test, whatever the score
    drawn = draw_samples(3000)
    drawn["split"] = ["train"] * 1000 + ["dev"] * 1000 + ["test"] * 1000
    drawn["label"] = [int(i % (2 if i < 1000 else 5) == 0) for i in range(3000)]
    drawn["date"] = [date(2024, 1, 1 + i // 1000) for i in range(3000)]
    scored, values = make_samples(spark, drawn), make_values(spark)
    fit, test = (
        collect_cells(build_logit_cells(scored.filter(where), values, "f"), 4)
        for where in ("split != 'test'", "split = 'test'")
    )
    found = measure_level_drift(scored, values, make_config(), test, fit)
    assert found is not None and list(found) == ["none", "dev", "train_and_dev"]
    # dev's rate is that of test: 1; train and dev together respond (500 + 200)/2000, .35/.2 = 1.75 times as often
    assert found["dev"]["pcoc"] == pytest.approx(1.0, abs=0.1)
    assert found["train_and_dev"]["pcoc"] == pytest.approx(1.75, abs=0.15)
    assert found["dev"]["log_loss"] < found["train_and_dev"]["log_loss"] - 0.02
    alone = measure_level_drift(scored, values, make_config(calibrator={"fit_on": "dev"}), test, fit)
    assert alone is not None and list(alone) == ["none", "dev"]


def test_rows_without_dates_or_dev_have_no_drift(spark: SparkSession) -> None:
    scored, values = make_samples(spark, draw_samples(30)), make_values(spark)
    cells = collect_cells(build_logit_cells(scored, values, "f"), 4)
    undated = make_config(input={"path": "x.parquet", "label": "y"}, split={"by": "hash"})
    no_dev = make_config(split={"by": "date", "train": 0.8, "dev": 0.0, "test": 0.2})
    for config in (undated, no_dev):
        assert measure_level_drift(scored, values, config, cells, cells) is None
