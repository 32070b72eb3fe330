"""Isotonic scores by column expressions against the baselines' own `predict`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.baselines.isotonic_offset import IsotonicOffset, fit_isotonic_offset
from adacalib.cells.logit_cells import PROBABILITY_LIMIT
from adacalib.stats.reference_scores import add_reference_scores
from adacalib.stats.segments import find_segment, interpolate
from tests.assert_table import collect_rows
from tests.model.calibrator_world import cells_of, draw_rows
from tests.stats.small_samples import draw_samples, make_samples, samples_by_hand


def add(rows: DataFrame, fitted: IsotonicOffset) -> DataFrame:
    curve = fitted.isotonic
    rate_limits = (curve.lowest_rate, curve.highest_rate)
    return add_reference_scores(rows, "f", curve.logit_knots, curve.rate_knots, rate_limits, fitted.level_V)


def test_by_hand(spark: SparkSession) -> None:
    # rates 0 up to logit -1, then linearly up to .5 at 1; lowest rate .1; levels 0, log 3 for ids 0, 1
    rows = make_samples(spark, samples_by_hand([(1, -2.0, 0), (1, 0.0, 1), (1, 5.0, 0), (0, 0.0, 1), (7, 0.0, 1)]))
    knots, rates = np.array([-2.0, -1.0, 1.0, 1.0]), np.array([0.0, 0.0, 0.5, 0.5])
    found = add_reference_scores(rows, "f", knots, rates, (0.1, 0.9), np.array([0.0, np.log(3.0)]))
    listed = collect_rows(found, ["sample_id"])
    assert [row["score__isotonic"] for row in listed] == pytest.approx([PROBABILITY_LIMIT, 0.25, 0.5, 0.25, 0.25])
    # odds 1/9, 1/3, 1 times 3; without a level of its own the odds stay
    assert [row["score__isotonic_offset"] for row in listed] == pytest.approx([0.25, 0.5, 0.75, 0.25, 0.25])
    assert set(found.columns) - set(rows.columns) == {"score__isotonic", "score__isotonic_offset"}


def test_equal_to_the_baselines(spark: SparkSession) -> None:
    fitted = fit_isotonic_offset(cells_of(draw_rows(3000)))
    samples = draw_samples(2000, n_values=8, seed=5)  # ids 7 and 8 are not among the levels
    logit, ids = samples["uncalibrated_logit"].to_numpy().astype(float), samples["field_value_id_f"].to_numpy()
    rows = add(make_samples(spark, samples), fitted).orderBy("sample_id").toPandas()
    order = np.argsort(samples["sample_id"].to_numpy(), kind="stable")
    for name, predict in (("isotonic", fitted.isotonic.predict), ("isotonic_offset", fitted.predict)):
        np.testing.assert_allclose(rows[f"score__{name}"], predict(logit, ids)[order], rtol=1e-12, atol=1e-14)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9, unique=True), st.integers(0, 10**6))
def test_interpolation_is_numpys(spark: SparkSession, knots: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_knots, y_knots = np.sort(np.array(knots)), rng.normal(size=len(knots))
    x = np.concatenate([x_knots, rng.uniform(-6, 6, 20)])
    rows = spark.createDataFrame([(float(value),) for value in x], "x double")
    found = interpolate(rows, "x", x_knots, y_knots, "y").toPandas()
    expected = np.interp(found["x"], x_knots, y_knots)
    np.testing.assert_allclose(found["y"], expected, rtol=1e-9, atol=1e-9 * np.abs(y_knots).max())


def test_segment_by_hand(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(x, [0.0, 1.0]) for x in (-1.0, 0.0, 0.5, 1.0, 9.0)], "x double, bound array<double>")
    found = find_segment(rows, "x", F.col("bound"), 5)  # arrays may be shorter than said
    assert [row["segment"] for row in collect_rows(found, ["x"])] == [0, 1, 1, 2, 2]
