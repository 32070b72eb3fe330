"""What Petastorm streams: scored samples of train ∪ dev, or their logit cells, → training_rows."""

from __future__ import annotations

import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.schemas import id_column
from adacalib.stats.samples import SHARE_TOLERANCE

_SALT_PLACE, _SALT_HOLD_OUT = 1, 2
_HASH_PARTS = 10_000
_CELL_SUMS = ("n_samples", "n_responses", "sum_weight", "sum_weight_responses", "sum_weight_logit")


def find_first_held_out_day(rows: DataFrame, share: float) -> datetime.date | None:
    """The day from which on rows are held out: as few of the latest days as reach `share`, but never all.

    The share is of the weight, so that a row of weight 2 counts as two rows.

    A random hold-out of dated rows is no judge of what comes later: its rows have siblings of the same days, and the
    same bookings, among those trained on.

    Args:
        rows: with date and weight.
        share: of the weight, above 0.

    Returns:
        None where there are fewer than two days.
    """
    days = rows.groupBy("date").agg(F.sum("weight").alias("weight")).orderBy(F.desc("date")).collect()
    latest: list[tuple[datetime.date, float]] = [(day["date"], day["weight"]) for day in days]
    if len(latest) < 2:
        return None
    wanted, reached = share * sum(weight for _, weight in latest) * (1 - SHARE_TOLERANCE), 0.0
    for day, weight in latest[:-1]:
        reached += weight
        if reached >= wanted:
            return day
    return latest[-2][0]


def build_training_rows(
    scored: DataFrame,
    field: str,
    *,
    seed: int,
    hold_out_share: float,
    n_files: int,
    first_held_out_day: datetime.date | None = None,
) -> DataFrame:
    """One row per sample of train ∪ dev, spread over n_files and ordered inside each by a seeded hash.

    Each file, and so each row group, is a random sample of the rows, and the same rows in the same order whatever the
    partitioning of the input.

    Args:
        scored: scored samples; rows of split test are left out here.
        field: the calibrated field.
        hold_out_share: share of rows, by hash of sample_id, that choose the epoch (hold_out = 1).
        n_files: files to spread the rows over.
        first_held_out_day: where given, rows of this day and later are held out instead.
    """
    place = F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_PLACE))
    rows = scored.filter(F.col("split") != "test").select(
        "label",
        "weight",
        F.col(id_column(field)).alias("field_value_id"),
        "uncalibrated_logit",
        "auxiliary_features",
        "auxiliary_category_ids",
        _is_held_out(seed, hold_out_share, first_held_out_day).cast("int").alias("hold_out"),
        place.alias("place"),
        "sample_id",
    )
    spread = rows.repartition(n_files, "place").sortWithinPartitions("hold_out", "place", "sample_id")
    return spread.drop("place", "sample_id")


def _is_held_out(seed: int, share: float, first_day: datetime.date | None) -> Column:
    if first_day is not None:
        return F.col("date") >= F.lit(first_day)
    part = F.pmod(F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_HOLD_OUT)), F.lit(_HASH_PARTS))
    return part < round(share * _HASH_PARTS)


def build_cell_rows(cells: DataFrame, field: str, *, seed: int, n_files: int) -> DataFrame:
    """Rows per (logit cell, label) of one field that weigh together what the cell's samples with that label weigh.

    Without features all samples of a cell and a label get the same result up to the width of a cell, so these rows
    train the same functions as the samples do, and their number does not grow with the samples. No row is held out.

    A cell and label that weighs more than they do on average is dealt to several equal rows, none above that average
    and at most twice as many rows in all. A few cells hold most samples: whole, a batch would be as noisy as the few of
    them that it happens to hold, and its mean loss, which divides by its weight, would lean towards the light ones.

    Args:
        cells: logit cells of train ∪ dev; the dates of a cell are added up.
        field: the calibrated field.
        n_files: files to spread the rows over, each a random sample of them.
    """
    summed = (
        cells.filter(F.col("field") == field)
        .groupBy("field_value_id", "cell")
        .agg(*(F.sum(name).alias(name) for name in _CELL_SUMS))
    )
    weight = F.col("sum_weight_responses")
    labels = F.array(
        F.struct(F.lit(1).alias("label"), F.col("n_responses").alias("n"), weight.alias("weight")),
        F.struct(
            F.lit(0).alias("label"),
            (F.col("n_samples") - F.col("n_responses")).alias("n"),
            (F.col("sum_weight") - weight).alias("weight"),
        ),
    )
    logit = F.col("sum_weight_logit") / F.col("sum_weight")
    whole = (
        summed.withColumn("uncalibrated_logit", logit.cast("float"))
        .withColumn("one", F.explode(labels))
        .filter(F.col("one.n") > 0)
    )
    rows = _deal_heavy(whole, F.col("one.weight"))
    place = F.xxhash64("field_value_id", "cell", "one.label", "part", F.lit(seed), F.lit(_SALT_PLACE))
    return (
        rows.withColumn("place", place)
        .repartition(n_files, "place")
        .sortWithinPartitions("place", "field_value_id", "cell", "part")
        .select(
            F.col("one.label").cast("byte").alias("label"),
            (F.col("one.weight") / F.col("n_parts")).alias("weight"),
            "field_value_id",
            "uncalibrated_logit",
            F.array().cast("array<float>").alias("auxiliary_features"),
            F.array().cast("array<int>").alias("auxiliary_category_ids"),
            F.lit(0).alias("hold_out"),
        )
    )


def _deal_heavy(rows: DataFrame, weight: Column) -> DataFrame:
    """Each row as often as keeps a part of its weight to the average, with n_parts and part, 1 … n_parts."""
    mean = rows.agg(F.avg(weight).alias("mean_weight"))
    n_parts = F.ceil(weight / F.col("mean_weight") * (1 - SHARE_TOLERANCE)).cast("int")
    counted = rows.crossJoin(F.broadcast(mean)).withColumn("n_parts", F.greatest(n_parts, F.lit(1)))
    return counted.withColumn("part", F.explode(F.sequence(F.lit(1), "n_parts")))
