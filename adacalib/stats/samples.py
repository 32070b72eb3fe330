"""Good input rows → samples: split, sample_id, dense ids, encoded features."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from adacalib.config import SPLITS, RunConfig, SplitConfig
from adacalib.schemas import id_column
from adacalib.stats.feature_encodings import NumericEncoding, encode_numeric
from adacalib.stats.field_values import join_value_ids

_HASH_PARTS = 1_000_000
_SALT_SPLIT = 0
SHARE_TOLERANCE = 1e-9
"""By how much a share of the weight may miss: .1 + .2 is a hair more than .3, sums differ in their last bits."""


def split_by_hash(sample_id: Column, split: SplitConfig, seed: int) -> Column:
    """train, dev or test by a seeded hash of the sample's id.

    The id tells occurrences of a repeated row apart, so each is dealt by itself. A hash of the columns alone would deal
    all copies of (score, value, label) to one split, and a table of few distinct rows would have other label rates in
    train than in test.

    >>> rows = spark.range(1000).select(split_by_hash(F.col("id"), SplitConfig(), 7).alias("split"))
    >>> rows.filter("split = 'train'").count() in range(550, 650)
    True
    """
    place = F.pmod(F.xxhash64(sample_id, F.lit(seed), F.lit(_SALT_SPLIT)), F.lit(_HASH_PARTS))
    first, second = round(split.train * _HASH_PARTS), round((split.train + split.dev) * _HASH_PARTS)
    return F.when(place < first, "train").when(place < second, "dev").otherwise("test")


def split_by_date(date: Column, last_train_date: object, last_dev_date: object) -> Column:
    """train up to and with last_train_date, dev up to and with last_dev_date, test after it."""
    return F.when(date <= F.lit(last_train_date), "train").when(date <= F.lit(last_dev_date), "dev").otherwise("test")


def find_split_dates(rows: DataFrame, split: SplitConfig) -> tuple[object, object]:
    """The last date of train and of dev: a whole day goes to the earliest split whose share it starts in.

    Shares are of the weight, so that a row of weight 2 counts as two rows. With `test_days` the last days, counted by
    the calendar from the last one that has rows, are test, and the shares of train and dev divide those before; where
    there are none both ends lie before the first test day.

    Args:
        rows: with date and weight; at least one row.
    """
    days = rows.groupBy("date").agg(F.sum("weight").alias("weight")).orderBy("date").collect()  # bounded by days
    shares = (split.train, split.train + split.dev)
    if split.test_days is not None:
        last = days[-1]["date"] - timedelta(days=split.test_days)
        days = [day for day in days if day["date"] <= last]
        if not days:
            return last, last
        shares = (split.train / (split.train + split.dev), 1.0)
    total = sum(day["weight"] for day in days)
    ends = []
    for share in shares:
        before = 0.0
        end = days[0]["date"]
        for day in days:
            if before >= share * total * (1 - SHARE_TOLERANCE):
                break
            end = day["date"]
            before += day["weight"]
        ends.append(end)
    return ends[0], ends[1]


def assign_split(rows: DataFrame, split: SplitConfig, seed: int) -> DataFrame:
    """Adds split, as `split.by` deals it; rows of `split.test_only` go to test in any case.

    Those rows count among the days and shares by which the others are dealt, so that `test_only` moves no other row.

    Args:
        rows: good input rows with sample_id.
        seed: of by: hash.
    """
    if split.by == "column":
        dealt = F.col("given_split")
    elif split.by == "date":
        dealt = split_by_date(F.col("date"), *find_split_dates(rows, split))
    else:
        dealt = split_by_hash(F.col("sample_id"), split, seed)
    return rows.withColumn("split", F.when(F.col("is_test_only"), "test").otherwise(dealt))


def assign_sample_ids(rows: DataFrame, n_partitions: int) -> DataFrame:
    """Adds sample_id: the row's hash and, since rows may repeat, the number of the occurrence.

    Rows are spread over exactly n_partitions by their hash, so files have the same rows whatever the input's layout.
    """
    occurrence = F.row_number().over(Window.partitionBy("row_hash").orderBy("second_hash"))
    return rows.repartition(n_partitions, "row_hash").withColumn(
        "sample_id", F.concat(F.lower(F.hex("row_hash")), F.lit("-"), occurrence.cast("string"))
    )


def build_samples(
    rows: DataFrame,
    value_ids: DataFrame,
    encodings: Sequence[NumericEncoding],
    config: RunConfig,
    broadcast: bool,
    parents: DataFrame | None = None,
) -> DataFrame:
    """One row per sample: ids and standardised features in place of raw values.

    Args:
        rows: good input rows with split and sample_id.
        value_ids: of `assign_value_ids` on train ∪ dev, fields under their name, categories as `category__NAME`.
        broadcast: whether the ids fit into each executor's memory.
        parents: of `build_field_value_parents`, where the run has a parent.
    """
    rows = _join_parent_ids(rows, parents)
    for field in config.fields:
        rows = join_value_ids(rows, value_ids, field, f"field__{field}", broadcast)
    for name in config.features.categorical:
        rows = join_value_ids(rows, value_ids, f"category__{name}", f"category__{name}", broadcast)
    return rows.select(
        "sample_id",
        "row_key",
        F.col("label").cast("byte").alias("label"),
        "weight",
        "date",
        "true_probability",
        *(F.col(f"value_id__{field}").alias(id_column(field)) for field in config.fields),
        "parent_id",
        "own_logit",
        encode_numeric(encodings, config.predictor_features).alias("predictor_features"),
        _category_ids(config, config.predictor_features).alias("predictor_category_ids"),
        encode_numeric(encodings, config.auxiliary_features).alias("auxiliary_features"),
        _category_ids(config, config.auxiliary_features).alias("auxiliary_category_ids"),
        "split",
    )


def count_samples(rows: DataFrame, value_ids: DataFrame, fields: Sequence[str], broadcast: bool) -> DataFrame:
    """One row per split: samples, responses and, per field, samples whose value train ∪ dev do not have.

    Args:
        rows: good input rows with split.
        value_ids, broadcast: as in `build_samples`.
    """
    for field in fields:
        rows = join_value_ids(rows, value_ids, field, f"field__{field}", broadcast)
    return rows.groupBy("split").agg(
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(F.col("label").cast("long")).alias("n_responses"),
        *(F.sum((F.col(f"value_id__{field}") == 0).cast("long")).alias(f"n_unseen_{field}") for field in fields),
    )


def find_empty_splits(n_samples: dict[str, int], split: SplitConfig, *, has_stored_days: bool = False) -> list[str]:
    """Splits that should have rows and have none; of a run that fits on stored days only test should."""
    wanted = ["test"] if has_stored_days else [name for name in SPLITS if name != "dev" or split.dev > 0]
    return [name for name in wanted if n_samples.get(name, 0) == 0]


def _join_parent_ids(rows: DataFrame, parents: DataFrame | None) -> DataFrame:
    """Adds parent_id; 0 where the row names no parent, or one that no value of train ∪ dev has."""
    if parents is None:
        return rows.withColumn("parent_id", F.lit(0))
    ids = parents.filter("parent_id > 0").select("parent", "parent_id").distinct()
    joined = rows.join(F.broadcast(ids), "parent", "left")
    return joined.withColumn("parent_id", F.coalesce("parent_id", F.lit(0)))


def _category_ids(config: RunConfig, features: Sequence[str]) -> Column:
    ids = [F.col(f"value_id__category__{name}") for name in config.features.categorical if name in features]
    return F.array(*ids).cast("array<int>") if ids else F.array().cast("array<int>")
