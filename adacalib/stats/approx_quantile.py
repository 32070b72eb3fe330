"""The prescribed reference path to bounds and posteriors: percentile_approx by groupBy, then a second pass.

Its bounds depend on the partitioning of the rows (percentile_approx merges sketches), so the same input may give other
bounds on a laptop and on a cluster; `method: logit_cells` does not have that fault. A test holds the two together.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adacalib.schemas import id_column
from adacalib.stats.logit_cells import LOGIT_UNIT, assign_cell


def compute_approximate_bounds(scored: DataFrame, field: str, n_bins: int, accuracy: int) -> DataFrame:
    """One row per field value and one for all rows (field_value_id 0): K + 1 bounds of equal frequency or fewer.

    The global row comes from the same aggregation (rollup). Equal bounds merge. A value with fewer than K + 2 distinct
    logit cells takes the bounds of id 0, as in `method: logit_cells`. The last bound lies just above the largest logit,
    so that every sample falls in a bin.

    Args:
        accuracy: of percentile_approx; the rank error is at most n / accuracy.

    Returns:
        Columns field_value_id, bin_bounds (array<double>, increasing, log-odds; at least 2).
    """
    fractions = F.array(*(F.lit(k / n_bins) for k in range(n_bins + 1)))
    logit = F.col("uncalibrated_logit").cast("double")
    named = scored.select(F.col(id_column(field)).alias("field_value_id"), "uncalibrated_logit")
    rolled = named.rollup("field_value_id").agg(
        F.percentile_approx(logit, fractions, F.lit(accuracy)).alias("quantiles"),
        F.max(logit).alias("largest"),
        F.size(F.collect_set(assign_cell(F.col("uncalibrated_logit")))).alias("n_cells"),
        F.grouping("field_value_id").alias("is_global"),  # ids are never null, but the global row's is
    )
    above = F.col("largest") + F.lit(1.0 / LOGIT_UNIT)
    inner = F.array_distinct(F.filter("quantiles", lambda b: b < F.col("largest")))
    inner = F.when(F.size(inner) > 0, inner).otherwise(F.array("largest"))
    bounds = rolled.select(
        F.when(F.col("is_global") == 1, 0).otherwise(F.col("field_value_id")).alias("field_value_id"),
        F.concat(inner, F.array(above)).alias("own_bounds"),
        ((F.col("n_cells") >= n_bins + 2) | (F.col("is_global") == 1)).alias("has_own"),
        "is_global",
    )
    bounds = bounds.filter((F.col("is_global") == 1) | (F.col("field_value_id") > 0))
    whole = bounds.filter("is_global = 1").select(F.col("own_bounds").alias("global_bounds"))
    return bounds.crossJoin(F.broadcast(whole)).select(
        "field_value_id",
        F.when(F.col("has_own"), F.col("own_bounds")).otherwise(F.col("global_bounds")).alias("bin_bounds"),
    )


def sum_bins_of_rows(scored: DataFrame, bounds: DataFrame, field: str, n_bins: int) -> DataFrame:
    """One row per (field value, bin) with samples, and per bin of all rows (field_value_id 0): the second pass.

    bin_index = clip(#{k : s ≥ b_k} − 1, 0, K − 1), by generated comparisons (faster than an array filter).

    Returns:
        field_value_id, bin_index, n_samples, n_responses, sum_weight, sum_weight_responses, sum_weight_logit.
    """
    logit = F.col("uncalibrated_logit").cast("double")
    rows = scored.select(F.col(id_column(field)).alias("id"), logit.alias("logit"), "label", "weight")
    own = rows.join(F.broadcast(bounds.withColumnRenamed("field_value_id", "id")), "id").filter("id > 0")
    whole = rows.crossJoin(F.broadcast(bounds.filter("field_value_id = 0").select("bin_bounds"))).withColumn(
        "id", F.lit(0)
    )
    reached = [
        F.coalesce((F.col("logit") >= F.get("bin_bounds", F.lit(k))).cast("int"), F.lit(0)) for k in range(n_bins + 1)
    ]
    index = F.greatest(F.lit(0), F.least(reduce(lambda a, b: a + b, reached) - 1, F.size("bin_bounds") - 2))
    binned = own.select("id", "logit", "label", "weight", "bin_bounds").unionByName(
        whole.select("id", "logit", "label", "weight", "bin_bounds")
    )
    return binned.groupBy(F.col("id").alias("field_value_id"), index.alias("bin_index")).agg(
        F.count(F.lit(1)).alias("n_samples"),
        F.sum(F.col("label").cast("long")).alias("n_responses"),
        F.sum("weight").alias("sum_weight"),
        F.sum(F.col("weight") * F.col("label")).alias("sum_weight_responses"),
        F.sum(F.col("weight") * F.col("logit")).alias("sum_weight_logit"),
    )
