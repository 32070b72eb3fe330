"""Training rows, of samples and of logit cells: spread and ordered by a seeded hash."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib.schemas import TRAINING_ROWS, check_schema
from adacalib.stats.logit_cells import build_logit_cells
from adacalib.stats.training_rows import build_cell_rows, build_training_rows, find_first_held_out_day
from tests.assert_table import collect_rows
from tests.stats.small_samples import draw_samples, make_samples, make_values, samples_by_hand


def build(rows: DataFrame, seed: int = 5, n_files: int = 4) -> DataFrame:
    return build_training_rows(rows, "f", seed=seed, hold_out_share=0.2, n_files=n_files)


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


def test_held_out_share(spark: SparkSession) -> None:
    table = build(make_samples(spark, draw_samples(1000)))
    assert abs(table.filter("hold_out = 1").count() - 200) < 65


@pytest.mark.parametrize(
    ("rows_of_days", "share", "first"),
    [
        ({1: 70, 2: 20, 3: 10}, 0.1, 3),  # the last day is a tenth
        ({1: 70, 2: 20, 3: 10}, 0.11, 2),
        ({3: 50, 1: 10, 2: 40}, 0.1, 3),  # a whole day, though it is half of the rows
        ({1: 90, 2: 5, 3: 5}, 0.4, 2),  # the first day is left to train on
        ({4: 100}, 0.1, None),
    ],
)
def test_latest_days_are_held_out(
    spark: SparkSession, rows_of_days: dict[int, int], share: float, first: int | None
) -> None:
    drawn = draw_samples(100)
    drawn["date"] = [date(2026, 3, day) for day, n in rows_of_days.items() for _ in range(n)]
    rows = make_samples(spark, drawn)
    day = find_first_held_out_day(rows, share)
    assert day == (None if first is None else date(2026, 3, first))
    if day is None:
        return
    table = build_training_rows(
        rows, "f", seed=5, hold_out_share=share, n_files=2, first_held_out_day=day
    ).toPandas()  # 100 rows
    dates = drawn["date"].iloc[table["auxiliary_features"].str[0].astype(int)].to_numpy()
    np.testing.assert_array_equal(table["hold_out"] == 1, dates >= day)


def build_cells(spark: SparkSession, drawn: pd.DataFrame, n_partitions: int = 2) -> DataFrame:
    """The logit_cells table of field f, and rows of another field that nobody may read."""
    cells = build_logit_cells(make_samples(spark, drawn, n_partitions), make_values(spark), "f")
    return cells.unionByName(cells.withColumn("field", F.lit("g"))).repartition(n_partitions)


def on_days(drawn: pd.DataFrame, n_days: int = 3) -> pd.DataFrame:
    return drawn.assign(date=[date(2024, 5, 1 + i % n_days) for i in range(len(drawn))])


def test_cell_rows_by_hand(spark: SparkSession) -> None:
    # cell 16 of value 1: two responses and one non-response; cell -1 of value 2: responses alone, so one row
    drawn = samples_by_hand(
        [(1, 0.5, 1), (1, 0.515625, 0), (1, 0.53125 - 2**-10, 1), (2, -(2**-6), 1), (2, -(2**-6), 1)]
    )
    drawn["weight"] = [2.0, 1.0, 0.5, 3.0, 0.25]
    table = build_cell_rows(build_cells(spark, on_days(drawn)), "f", seed=5, n_files=2)
    check_schema(table.schema, TRAINING_ROWS, "training_rows")
    rows = sorted(
        (row["field_value_id"], row["label"], row["weight"], row["uncalibrated_logit"]) for row in collect_rows(table)
    )
    # (2·.5 + .515625 + .5·(.53125 - 2^-10))/3.5, one logit for both labels of a cell
    mean = np.float32((1.0 + 0.515625 + 0.5 * (0.53125 - 2**-10)) / 3.5)
    # (1 + 2.5 + 3.25)/3 = 2.25 is the most that a row weighs
    halves = [(1, 1, 1.25, mean), (2, 1, 1.625, -(2**-6))]
    assert rows == [(1, 0, 1.0, mean), halves[0], halves[0], halves[1], halves[1]]
    rest = {(row["hold_out"], len(row["auxiliary_features"])) for row in collect_rows(table)}
    assert rest == {(0, 0)}
    assert all(row["auxiliary_category_ids"] == [] for row in collect_rows(table))


def test_cell_rows_weigh_what_the_samples_of_value_and_label_weigh(spark: SparkSession) -> None:
    drawn = on_days(draw_samples(500, weighted=True))
    rows = pd.DataFrame(collect_rows(build_cell_rows(build_cells(spark, drawn), "f", seed=5, n_files=3)))
    own = drawn.rename(columns={"field_value_id_f": "field_value_id"})
    own["cell"], rows["cell"] = (np.floor(32 * part["uncalibrated_logit"].astype(float)) for part in (own, rows))
    for keys in (["field_value_id", "label"], ["field_value_id", "label", "cell"]):
        expected, found = (part.groupby(keys)["weight"].sum() for part in (own, rows))
        pd.testing.assert_series_equal(found, expected, check_dtype=False, check_index_type=False)
    # none without a sample, and none above the average over cells and labels; as few as that takes
    weights = own.groupby(["field_value_id", "label", "cell"])["weight"].sum()
    assert (rows["weight"] > 0).all()
    assert rows["weight"].max() <= weights.mean() * (1 + 1e-9)
    assert len(rows) == np.ceil(weights / weights.mean()).sum() < len(own)
    assert rows.groupby(["field_value_id", "label", "cell"])["weight"].nunique().max() == 1


def test_cell_rows_of_one_weight_stay_whole(spark: SparkSession) -> None:
    # .1 is no binary fraction: the average of three is a hair off, which must not halve every row
    drawn = samples_by_hand([(1, 0.5, 1), (1, 0.5, 0), (2, -0.5, 0)])
    drawn["weight"] = 0.1
    rows = collect_rows(build_cell_rows(build_cells(spark, on_days(drawn)), "f", seed=5, n_files=2))
    assert [row["weight"] for row in rows] == [0.1, 0.1, 0.1]


def test_cell_rows_lie_in_the_same_files_on_any_partitioning(spark: SparkSession) -> None:
    drawn = on_days(draw_samples(400))

    def list_cell_files(n_partitions: int, seed: int = 5) -> list[list[tuple[float, ...]]]:
        table = build_cell_rows(build_cells(spark, drawn, n_partitions), "f", seed=seed, n_files=3)
        plain = table.select("field_value_id", "label", "weight", "uncalibrated_logit")
        return plain.rdd.mapPartitions(lambda part: [[tuple(row) for row in part]]).collect()

    files = list_cell_files(1)
    assert files == list_cell_files(5)
    assert len(files) == 3
    assert all(len(part) > 60 for part in files)
    # each file a random sample: no order of values, labels or logits is left in it
    for part in files:
        order = np.arange(len(part))
        assert all(abs(np.corrcoef(order, [row[i] for row in part])[0, 1]) < 0.35 for i in (0, 1, 3))
    assert list_cell_files(1, seed=6) != files
