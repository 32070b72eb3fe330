"""Scored samples of train ∪ dev → training_rows: what Petastorm streams."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adacalib.schemas import id_column
from adacalib.stats.logit_cells import assign_fold

_SALT_PLACE, _SALT_HOLD_OUT = 1, 2
_HASH_PARTS = 10_000


def build_training_rows(
    scored: DataFrame, field: str, *, n_folds: int, seed: int, hold_out_share: float, n_files: int
) -> DataFrame:
    """One row per sample of train ∪ dev, spread over n_files and ordered inside each by a seeded hash.

    Each file, and so each row group, is a random sample of the rows, and the same rows in the same order whatever the
    partitioning of the input.

    Args:
        scored: scored samples; rows of split test are left out here.
        field: the calibrated field.
        n_folds: folds of the out-of-fold logit.
        hold_out_share: share of rows, by hash of sample_id, that choose the epoch (hold_out = 1).
    """
    place = F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_PLACE))
    hold_out = F.pmod(F.xxhash64("sample_id", F.lit(seed), F.lit(_SALT_HOLD_OUT)), F.lit(_HASH_PARTS))
    rows = scored.filter(F.col("split") != "test").select(
        "label",
        "weight",
        F.col(id_column(field)).alias("field_value_id"),
        assign_fold(F.col("sample_id"), n_folds, seed).alias("fold"),
        "uncalibrated_logit",
        "auxiliary_features",
        "auxiliary_category_ids",
        (hold_out < round(hold_out_share * _HASH_PARTS)).cast("int").alias("hold_out"),
        place.alias("place"),
        "sample_id",
    )
    spread = rows.repartition(n_files, "place").sortWithinPartitions("hold_out", "place", "sample_id")
    return spread.drop("place", "sample_id")
