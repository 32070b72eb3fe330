"""Scored samples → calibrated samples by column expressions: the torch forward pass without its Python workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import schemas
from adacalib.cells.bin_bounds import merge_equal_bounds
from adacalib.cells.functions import build_functions
from adacalib.cells.logit_cells import LOGIT_LIMIT
from adacalib.model.calibrator import Calibrator, functions_of, parent_levels_of
from adacalib.stats.calibrated_samples import calibrate_by_functions
from tests.assert_table import collect_rows
from tests.model.served_models import make_functions
from tests.stats.small_samples import draw_samples, make_samples, samples_by_hand


def make_scored(spark: SparkSession, samples: pd.DataFrame, n_partitions: int = 2) -> DataFrame:
    """scored_samples of field f; parent_id 1 throughout."""
    extra = {"row_key": F.lit("k"), "parent_id": F.lit(1), "true_probability": F.lit(0.5)}
    names = schemas.scored_samples(["f"]).fieldNames()
    return make_samples(spark, samples, n_partitions).withColumns(extra).select(*names)


def calibrate(rows: DataFrame, calibrator: Calibrator) -> dict[str, float]:
    """sample_id → calibrated logit."""
    found = calibrate_by_functions(rows, functions_of(calibrator), ["f"])
    return {row["sample_id"]: row["calibrated_logit"] for row in collect_rows(found)}


def ask_torch(calibrator: Calibrator, samples: pd.DataFrame) -> np.ndarray:
    logit_B = torch.from_numpy(samples["uncalibrated_logit"].to_numpy().copy()).clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
    ids_B = torch.from_numpy(samples["field_value_id_f"].to_numpy().astype(np.int64))
    return calibrator(ids_B, logit_B, {}).numpy()


def test_by_hand(spark: SparkSession) -> None:
    # ids 1 and 2 of served_models: bounds −2 −1 1 with knots −1 −.9 2; bounds −1 1 with knots .3 .7 (slope .2)
    hand = [(2, 0.0, 1), (2, 1.0, 0), (2, 3.0, 0), (1, -1.0, 1), (1, 0.0, 0), (1, -3.0, 0), (0, 2.0, 1)]
    rows = make_scored(spark, samples_by_hand(hand))
    found = calibrate_by_functions(rows, make_functions(), ["f"])
    schemas.check_schema(found.schema, schemas.calibrated_samples(["f"]), "calibrated_samples")
    listed = collect_rows(found, ["sample_id"])
    # 1.45: slope of id 1 above −1, (2 + .9)/2; below −2 its slope .1; id 0 at its last bound
    expected = [0.5, 0.7, 1.1, -0.9, 0.55, -1.1, 1.0]
    np.testing.assert_allclose([row["calibrated_logit"] for row in listed], expected, atol=1e-12)
    np.testing.assert_allclose(
        [row["calibrated_score"] for row in listed], 1 / (1 + np.exp(-np.array(expected))), atol=1e-12
    )
    assert [(row["label"], row["row_key"], row["true_probability"]) for row in listed][:2] == [
        (1, "k", 0.5),
        (0, "k", 0.5),
    ]


@pytest.mark.parametrize("n_bins", [1, 20, 33])
def test_equals_the_forward_pass(spark: SparkSession, n_bins: int) -> None:
    # 33 bins: one more than a power of two; bounds on cell edges, equal ones merged, and logits on the bounds
    rng = np.random.default_rng(n_bins)
    bounds = merge_equal_bounds(np.sort(np.round(rng.normal(-1, 1, (4, n_bins + 1)) * 32) / 32, axis=1))
    functions = build_functions(bounds, np.cumsum(rng.uniform(0, 0.3, (4, n_bins + 1)), axis=1) - 3)
    calibrator = Calibrator(functions, rng.normal(size=4), -0.7, None, slope=0.9, offset=0.2)
    samples = draw_samples(600, n_values=3)
    on_bounds = bounds.bin_bounds_VJ[np.isfinite(bounds.bin_bounds_VJ)][:60]
    samples.loc[: len(on_bounds) - 1, "uncalibrated_logit"] = on_bounds.astype(np.float32)
    samples.loc[595:, "uncalibrated_logit"] = np.float32([-30, 30, -16, 16, 0])
    samples.loc[500:549, "field_value_id_f"] = 0
    found = calibrate(make_scored(spark, samples, 3), calibrator)
    np.testing.assert_allclose(
        [found[name] for name in samples["sample_id"]], ask_torch(calibrator, samples), atol=1e-9
    )


def test_an_unseen_value_gets_its_parents_level(spark: SparkSession) -> None:
    # half of (1 + .4) and of .5, and .1 more
    calibrator = Calibrator(make_functions(), np.zeros(4), 0.0, None, np.array([0.0, 0.4]), slope=0.5, offset=0.1)
    rows = make_scored(spark, samples_by_hand([(0, 2.0, 1), (2, 0.0, 1)]))
    found = calibrate_by_functions(rows, functions_of(calibrator), ["f"], parent_levels_of(calibrator))
    listed = collect_rows(found, ["sample_id"])
    assert [row["calibrated_logit"] for row in listed] == pytest.approx([0.8, 0.35])


@pytest.mark.parametrize(
    ("rows", "levels", "message"),
    [
        ([(4, 0.0, 1)], None, r"field_value_id_f = 4, uncalibrated_logit = 0.0; .* ids 0 \(unseen\) to 3.*train_calib"),
        ([(-1, 0.0, 1)], None, r"field_value_id_f = -1"),
        ([(1, float("nan"), 1)], None, r"uncalibrated_logit = NaN"),
        ([(0, 0.0, 1)], [0.0], r"parent_id = 1; .* parent ids 0 \(none\) to 0"),
    ],
)
def test_rows_that_the_checkpoint_does_not_know_are_refused(
    spark: SparkSession, rows: Sequence[tuple[int, float, int]], levels: list[float] | None, message: str
) -> None:
    scored = make_scored(spark, samples_by_hand([(1, 0.5, 0), *rows]))
    found = calibrate_by_functions(scored, make_functions(), ["f"], None if levels is None else np.array(levels))
    with pytest.raises(Exception, match=message):
        found.collect()
