"""Training rows: spread and ordered by a seeded hash."""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.schemas import TRAINING_ROWS, check_schema
from adacalib.stats.training_rows import build_training_rows
from tests.assert_table import collect_rows
from tests.stats.small_samples import draw_samples, make_samples


def build(rows: DataFrame, seed: int = 5, n_files: int = 4) -> DataFrame:
    return build_training_rows(rows, "f", n_folds=4, seed=seed, hold_out_share=0.2, n_files=n_files)


def list_files(rows: DataFrame) -> list[list[float]]:
    """Per file the first auxiliary feature of its rows, which numbers them, in order."""
    return rows.rdd.mapPartitions(lambda part: [[row.auxiliary_features[0] for row in part]]).collect()


def test_rows_of_train_and_dev_each_once_with_their_columns(spark: SparkSession) -> None:
    drawn = draw_samples(300)
    drawn.loc[:49, "split"] = "test"
    table = build(make_samples(spark, drawn))
    check_schema(table.schema, TRAINING_ROWS, "training_rows")
    rows = sorted(collect_rows(table), key=lambda row: row["auxiliary_features"])
    assert [row["auxiliary_features"] for row in rows] == [[float(i)] for i in range(50, 300)]
    for row, wanted in zip(rows, drawn[50:].itertuples(), strict=True):
        assert (row["label"], row["weight"], row["field_value_id"]) == (
            wanted.label,
            wanted.weight,
            wanted.field_value_id_f,
        )
        assert row["uncalibrated_logit"] == float(wanted.uncalibrated_logit)


def test_files_do_not_depend_on_the_inputs_partitions_but_on_the_seed(spark: SparkSession) -> None:
    drawn = draw_samples(300)
    files = [list_files(build(make_samples(spark, drawn, n))) for n in (1, 5)]
    assert files[0] == files[1]
    assert len(files[0]) == 4 and all(files[0])
    assert list_files(build(make_samples(spark, drawn), seed=6)) != files[0]


def test_each_file_is_a_random_sample(spark: SparkSession) -> None:
    files = list_files(build(make_samples(spark, draw_samples(1000)), n_files=2))
    for part in files:
        assert abs(len(part) - 500) < 80  # five standard deviations
        assert abs(np.mean(part) - 500) < 65
        assert abs(np.corrcoef(part, np.arange(len(part)))[0, 1]) < 0.25  # the order of input is gone


def test_held_out_share_and_folds(spark: SparkSession) -> None:
    table = build(make_samples(spark, draw_samples(1000)))
    counts = {
        (row["hold_out"], row["fold"]): row["count"] for row in collect_rows(table.groupBy("hold_out", "fold").count())
    }
    assert {fold for _, fold in counts} == {0, 1, 2, 3}
    held_out = sum(n for (hold_out, _), n in counts.items() if hold_out == 1)
    assert abs(held_out - 200) < 65
    # held out and fold come from different hashes: neither decides the other
    assert all(counts[1, fold] > 20 for fold in range(4))


def test_fold_is_the_one_of_the_cells(spark: SparkSession) -> None:
    # the out-of-fold logit of a row must come from cells without it: both tables use one rule
    from adacalib.stats.logit_cells import assign_fold

    samples = make_samples(spark, draw_samples(100))
    by_rule = samples.select(
        F.col("auxiliary_features")[0].alias("i"), assign_fold(F.col("sample_id"), 4, 5).alias("fold")
    )
    expected = {row["i"]: row["fold"] for row in collect_rows(by_rule)}
    assert {row["auxiliary_features"][0]: row["fold"] for row in collect_rows(build(samples))} == expected
