"""raw table → samples, field_values, feature_encodings, rejects.

Reads the raw table of `input`.
Writes, under runs/NAME/tables:
    samples            one row per accepted input row, in folders split=train, dev, test
    field_values       one row per (field, field value of train ∪ dev) and one per field for unseen values
    field_value_parents one row per value of the calibrated field, where the run has a parent
    feature_encodings  one row per numeric feature component and per category
    rejects            one row per distinct faulty input row, with its reasons
Faulty rows are set aside and counted; above `input.max_rejected_share` the run stops.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from adacalib import io, schemas
from adacalib.config import RunConfig
from adacalib.stats import day_cells, feature_encodings, field_value_parents, field_values, input_rows, rejects, samples
from adacalib.stats.logit_cells import MAX_FIELD_VALUE_ID
from adacalib.window import Window, find_window

log = logging.getLogger("adacalib")

SMALL_WEIGHT = 0.1

BROADCAST_LIMIT = 2_000_000
"""Field values and categories up to which their ids are sent to every executor."""


def run(spark: SparkSession, config: RunConfig) -> None:
    """Writes the tables of this job."""
    raw = io.read_input(spark, config)
    if faults := input_rows.find_input_faults(raw, config):
        known = ", ".join(raw.columns)
        raise io.InputError(
            "\n  - ".join([f"{config.input.path} does not fit the configuration:", *faults])
            + f"\n  columns there: {known}"
        )
    with _reading(config):
        filtered = input_rows.filter_rows(raw, config)
        lengths = input_rows.find_array_lengths(filtered, config)
        n_input = raw.count()
        rows = input_rows.build_input_rows(filtered, config, lengths)
        counts = _count_input(rows, config, n_input, lengths)
    faulty = rows if counts["rejected"]["n_rejected"] else rows.filter(F.lit(False))
    io.write_table(rejects.build_rejects(faulty), config, "rejects", schemas.REJECTS, facts=counts["rejected"])
    _refuse_bad_input(config, counts)
    _warn_of_small_weights(config, counts["mean_weight"])
    with_ids = samples.assign_sample_ids(
        rows.filter(F.size("reasons") == 0), _count_partitions(config, counts["n_good"])
    )
    with_ids = with_ids.persist(StorageLevel.DISK_ONLY)  # as large as the input: in memory it would leave none
    try:
        with _reading(config):  # here every column of it is computed, and kept
            good = _split(with_ids, config, counts)
        days = None if config.window is None else find_window(good, config)
        _write_samples(good, config, lengths, counts, days)
    finally:
        with_ids.unpersist()


@contextmanager
def _reading(config: RunConfig) -> Iterator[None]:
    """Turns what Spark raises into a message about the input: its files and the configuration's expressions."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise io.unreadable_input(config, error) from error


def _write_samples(
    good: DataFrame,
    config: RunConfig,
    lengths: dict[str, int | None],
    counts: dict[str, Any],
    days: Window | None,
) -> None:
    fit = good.filter(F.col("split") != "test")
    fingerprint = counts["input_fingerprint"] + ("" if days is None else f"-{days.digest}")
    origin = {"generation": config.describe_generation(fingerprint)}
    value_ids = _assign_value_ids(good, config, days).persist(StorageLevel.MEMORY_AND_DISK)
    n_values = {row["name"]: row["count"] for row in value_ids.groupBy("name").count().collect()}
    _refuse_too_many_values(config, n_values)
    encodings = feature_encodings.learn_numeric_encodings(fit, lengths, has_weights=config.input.weight is not None)
    broadcast = sum(n_values.values()) <= BROADCAST_LIMIT
    parents = None
    if config.parent is not None:
        parents = field_value_parents.build_field_value_parents(fit, value_ids, config.field)
        parents = parents.persist(StorageLevel.MEMORY_AND_DISK)
    table = samples.build_samples(good, value_ids, encodings, config, broadcast, parents)
    seen = value_ids.filter("n_samples > 0")
    manifest = (
        counts
        | origin
        | {
            "input_fingerprint": fingerprint,
            "window": None if days is None else days.describe(),
            "splits": _count_splits(samples.count_samples(good, seen, config.fields, broadcast), config),
            "n_field_values": {field: n_values.get(field, 0) for field in config.fields},
        }
    )
    for user, names in (("predictor", config.predictor_features), ("auxiliary", config.auxiliary_features)):
        categories = [name for name in config.features.categorical if name in names]
        manifest[f"n_{user}_features"] = sum(e.feature in names for e in encodings)
        manifest[f"{user}_category_counts"] = [n_values.get(f"category__{name}", 0) + 1 for name in categories]
    named = field_values.build_field_values(value_ids, config.fields)
    io.write_table(named, config, "field_values", schemas.FIELD_VALUES, facts=origin)
    if parents is not None:
        io.write_table(parents, config, "field_value_parents", schemas.FIELD_VALUE_PARENTS, facts=origin)
    encoded = feature_encodings.build_feature_encodings(value_ids, encodings, list(config.features.categorical))
    io.write_table(encoded, config, "feature_encodings", schemas.FEATURE_ENCODINGS, facts=origin)
    io.write_table(table, config, "samples", schemas.samples(config.fields), partition_by="split", facts=manifest)
    value_ids.unpersist()
    if parents is not None:
        parents.unpersist()


def _assign_value_ids(good: DataFrame, config: RunConfig, days: Window | None) -> DataFrame:
    """Ids of the values of train ∪ dev; of a run that stores its days, of all values there, the window's too."""
    columns = {field: f"field__{field}" for field in config.fields}
    columns |= {f"category__{name}": f"category__{name}" for name in config.features.categorical}
    if days is None:
        return field_values.assign_value_ids(good.filter(F.col("split") != "test"), columns)
    cells = days.read_stored(good.sparkSession)
    stored = None if cells is None else day_cells.count_stored_values(cells, config.fields)
    is_within = F.col("date").between(F.lit(days.first), F.lit(days.last))
    return field_values.assign_value_ids(good, columns, counts=is_within, stored=stored)


def _refuse_too_many_values(config: RunConfig, n_values: dict[str, int]) -> None:
    if many := [field for field in config.fields if n_values.get(field, 0) > MAX_FIELD_VALUE_ID]:
        raise io.InputError(
            f"field {', '.join(many)}: {max(n_values[field] for field in many):,} values, and logit cells have room "
            f"for {MAX_FIELD_VALUE_ID:,}; is it a key of rows rather than a field?"
        )


def _count_splits(counted: DataFrame, config: RunConfig) -> dict[str, Any]:
    """Per split: samples, responses and, per field, samples whose value train ∪ dev do not have (id 0)."""
    return {
        row["split"]: {
            "n_samples": row["n_samples"],
            "n_responses": row["n_responses"],
            "n_unseen": {field: row[f"n_unseen_{field}"] for field in config.fields},
        }
        for row in counted.collect()
    }


def _count_input(rows: DataFrame, config: RunConfig, n_input: int, lengths: dict[str, int | None]) -> dict[str, Any]:
    """Everything that is counted on the way in; the input's fingerprint does not depend on files or order."""
    is_good = F.size("reasons") == 0
    components = feature_encodings.list_components(lengths)
    found = rows.agg(
        F.count(F.lit(1)).alias("n"),
        F.count_if(~is_good).alias("n_rejected"),
        F.avg(F.when(is_good, F.col("weight"))).alias("mean_weight"),
        F.count_if(is_good & F.col("is_clipped")).alias("n_clipped"),
        *(F.count_if(is_good & F.get("numeric", F.lit(i)).isNull()).alias(f"gap_{i}") for i in range(len(components))),
        F.sum(_row_hash()).alias("fingerprint"),
        F.sum(F.when(is_good, _row_hash())).alias("good_fingerprint"),
        *(F.count_if(F.col(f"field__{f}").isNull()).alias(f"null_{f}") for f in config.fields),
        *(F.count_if(F.col(f"field__{f}") == "").alias(f"empty_{f}") for f in config.fields),
    ).collect()[0]
    fingerprint = f"{found['n']}-{int(found['fingerprint'] or 0) % 2**64:016x}"
    return {
        "input": config.input.path,
        "input_fingerprint": fingerprint,
        "mean_weight": found["mean_weight"],
        "n_input": n_input,
        "n_filtered_out": n_input - found["n"],
        "n_good": found["n"] - found["n_rejected"],
        "good_fingerprint": str(found["good_fingerprint"]),
        "n_scores_clipped": found["n_clipped"],
        "imputed_nulls": {
            f"{name}[{component}]": found[f"gap_{i}"]
            for i, (name, component) in enumerate(components)
            if found[f"gap_{i}"]
        },
        "n_null_field_values": {f: found[f"null_{f}"] for f in config.fields},
        "n_empty_field_values": {f: found[f"empty_{f}"] for f in config.fields},
        "rejected": {
            "n_rejected": found["n_rejected"],
            "reasons": _count_reasons(rows) if found["n_rejected"] else {},
        },
    }


def _row_hash() -> Column:
    """Summed over rows it tells which rows they are, whatever their order."""
    return F.col("row_hash").cast("decimal(38,0)")


def _count_reasons(rows: DataFrame) -> dict[str, int]:
    return {row["reason"]: row["n_rows"] for row in rejects.count_reasons(rows).collect()}


def _refuse_bad_input(config: RunConfig, counts: dict[str, Any]) -> None:
    n_rejected, n_good = counts["rejected"]["n_rejected"], counts["n_good"]
    if n_rejected + n_good == 0:
        raise io.InputError(
            f"{config.input.path}: no row is left of {counts['n_input']:,} "
            f"(row_filter took {counts['n_filtered_out']:,}); correct input.path or input.row_filter"
        )
    share = n_rejected / (n_rejected + n_good)
    if share > config.input.max_rejected_share or n_good == 0:
        reasons = "".join(f"\n  - {reason}: {n:,} rows" for reason, n in counts["rejected"]["reasons"].items())
        raise io.InputError(
            f"{config.input.path}: {n_rejected:,} of {n_rejected + n_good:,} rows are faulty ({share:.2%}, allowed "
            f"{config.input.max_rejected_share:.2%}):{reasons}\n"
            f"The rows are in {io.table_path(config, 'rejects')}; repair them or raise input.max_rejected_share."
        )


def _warn_of_small_weights(config: RunConfig, mean_weight: float) -> None:
    if config.input.weight is not None and mean_weight < SMALL_WEIGHT:
        log.warning(
            "input.weight averages %g: a weight is the number of rows that a row stands for, so these rows count as "
            "%g of a row each and almost nothing is learnt; scale the weights unless that is meant",
            mean_weight,
            mean_weight,
        )


def _split(good: DataFrame, config: RunConfig, counts: dict[str, Any]) -> DataFrame:
    """The good rows, read once more, with their split.

    Raises:
        InputError: they are not the rows that were counted, or a split has none.
    """
    split_rows = samples.assign_split(good, config.split, config.seed)
    found = (
        split_rows.groupBy("split").agg(F.count(F.lit(1)).alias("n"), F.sum(_row_hash()).alias("fingerprint")).collect()
    )
    n_samples = {row["split"]: row["n"] for row in found}
    if str(sum(row["fingerprint"] for row in found)) != counts["good_fingerprint"]:
        raise io.InputError(
            f"{config.input.path}: {counts['n_good']:,} good rows when counted, {sum(n_samples.values()):,} when read "
            "again, and not the same: it changed meanwhile; run again on an input that stands still"
        )
    if empty := samples.find_empty_splits(n_samples, config.split, has_stored_days=config.window is not None):
        raise io.InputError(
            f"split {', '.join(empty)}: no rows (found {n_samples}); change split.by, its shares or "
            "split.test_only, or bring more rows"
        )
    return split_rows


def _count_partitions(config: RunConfig, n_rows: int) -> int:
    """Files per split: one row group each, several per rank."""
    return max(4 * config.training.ranks, math.ceil(n_rows / config.training.rows_per_row_group))


if __name__ == "__main__":
    io.run_job(run)
