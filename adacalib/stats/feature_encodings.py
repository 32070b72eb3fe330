"""Train ∪ dev rows → means and scales of numeric features; categories' ids come from field_values.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adacalib.schemas import FEATURE_ENCODINGS

_SIGNIFICANT_DIGITS = 6


class FeatureError(ValueError):
    """A numeric feature cannot be standardised."""


STANDARDISED_LIMIT = 1e4


@dataclass(frozen=True)
class NumericEncoding:
    """Standardisation of one component of a numeric feature: (x - mean) / scale; null becomes 0, the mean."""

    feature: str
    component: int
    mean: float
    scale: float


def list_components(lengths: Mapping[str, int | None]) -> list[tuple[str, int]]:
    """(feature, component) of each place in the array `numeric`; a plain number is component 0.

    >>> list_components({"price": None, "taste": 2})
    [('price', 0), ('taste', 0), ('taste', 1)]
    """
    return [
        (name, component) for name, length in lengths.items() for component in range(1 if length is None else length)
    ]


def learn_numeric_encodings(
    rows: DataFrame, lengths: dict[str, int | None], *, has_weights: bool = True
) -> list[NumericEncoding]:
    """Weighted mean and standard deviation per numeric component, over the rows given (train ∪ dev).

    Both are rounded to 6 significant digits of the deviation: a double sum's last bits depend on the partitioning, the
    encoded feature must not. (Digits of the mean itself would leave seconds since 1970 many deviations off.) A constant
    component has itself as mean and scale 1, an always-null one 0 and 1.

    Args:
        rows: with column `numeric`, the array of all components, and `weight`.
        lengths: feature → its array length, None for a plain number; in the order of the array.
        has_weights: without weights one pass over the rows is enough; with them there are two.

    Raises:
        FeatureError: values are so large that their squares overflow.
    """
    places = list_components(lengths)
    if not places:
        return []
    element = [F.col("numeric")[i] for i in range(len(places))]
    weight = F.col("weight")
    totals = _aggregate(
        rows,
        *((_weighted_mean(x, weight) if has_weights else F.avg(x)).alias(f"mean_{i}") for i, x in enumerate(element)),
        *(F.stddev_pop(x).alias(f"scale_{i}") for i, x in enumerate(element) if not has_weights),
        *(F.min(x).alias(f"min_{i}") for i, x in enumerate(element)),
        *(F.max(x).alias(f"max_{i}") for i, x in enumerate(element)),
    )
    if has_weights:  # deviations from the mean, not squares less its square: these cancel for seconds since 1970
        deviation = [x - F.lit(totals[f"mean_{i}"]) for i, x in enumerate(element)]
        totals |= _aggregate(
            rows, *(F.sqrt(_weighted_mean(d * d, weight)).alias(f"scale_{i}") for i, d in enumerate(deviation))
        )
    return [
        NumericEncoding(feature, component, *_find_mean_and_scale(feature, totals, i))
        for i, (feature, component) in enumerate(places)
    ]


def _weighted_mean(value: Column, weight: Column) -> Column:
    """Over the rows where the value is not null; null where it always is."""
    return F.sum(weight * value) / F.sum(F.when(value.isNotNull(), weight))


def _aggregate(rows: DataFrame, *columns: Column) -> dict[str, Any]:
    row = rows.agg(*columns).first()
    if row is None:
        raise ValueError("an aggregate without groups gave no row")
    return row.asDict()


def _find_mean_and_scale(feature: str, totals: Mapping[str, Any], i: int) -> tuple[float, float]:
    least, most, spread = totals[f"min_{i}"], totals[f"max_{i}"], totals[f"scale_{i}"]
    # both null, or a constant (its computed deviation may be a residue such as 1e-7), or values so small that the
    # squares of their differences vanish
    if least == most or spread == 0:
        return least or 0.0, 1.0
    if not math.isfinite(spread):
        raise FeatureError(
            f"features.numeric.{feature}: values from {least:g} to {most:g} have no finite standard deviation; "
            "write a smaller unit or a logarithm into its expression"
        )
    digits = _SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(spread))
    return round(totals[f"mean_{i}"], digits), round(spread, digits)


def encode_numeric(encodings: Sequence[NumericEncoding], features: Sequence[str]) -> Column:
    """array<float> of the standardised components of the features named, from column `numeric`.

    Standardised values are held within ±STANDARDISED_LIMIT: beyond it a value unlike any of train ∪ dev would
    overflow the networks' float32.
    """
    limit = F.lit(STANDARDISED_LIMIT)
    chosen = []
    for i, e in enumerate(encodings):
        if e.feature in features:
            value = F.coalesce((F.col("numeric")[i] - F.lit(e.mean)) / F.lit(e.scale), F.lit(0.0))
            chosen.append(F.greatest(-limit, F.least(limit, value)).cast("float"))
    return F.array(*chosen).cast("array<float>") if chosen else F.array().cast("array<float>")


def build_feature_encodings(
    value_ids: DataFrame, encodings: Sequence[NumericEncoding], categorical: Sequence[str]
) -> DataFrame:
    """One row per numeric component and per category: what a service needs to encode features as training did."""
    categories = value_ids.filter(F.col("name").isin(*[f"category__{name}" for name in categorical])).select(
        F.regexp_replace("name", "^category__", "").alias("feature"),
        F.lit("categorical").alias("kind"),
        F.lit(0).alias("component"),
        F.col("value").alias("category"),
        F.col("value_id").alias("category_id"),
        F.lit(None).cast("double").alias("mean"),
        F.lit(None).cast("double").alias("scale"),
    )
    numeric = [(e.feature, "numeric", e.component, None, None, e.mean, e.scale) for e in encodings]
    return categories.unionByName(categories.sparkSession.createDataFrame(numeric, FEATURE_ENCODINGS))
