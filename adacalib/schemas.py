"""One StructType per table; the grain of each stands above it.

Conventions: `field_value_id_FIELD` is the dense id of the field's value (0: not seen in train ∪ dev); `value_kind`
tells a raw value ("value", the empty string included) from a missing one ("null") and from the row for unseen values
("unseen"), so that `field_value` may be null without doubt about what it means.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)


class SchemaError(ValueError):
    """A table has not the columns or types that its schema states; the message lists every discrepancy."""


def _required(name: str, data_type: DataType) -> StructField:
    return StructField(name, data_type, nullable=False)


def _optional(name: str, data_type: DataType) -> StructField:
    return StructField(name, data_type, nullable=True)


_FLOATS = ArrayType(FloatType(), containsNull=False)
_IDS = ArrayType(IntegerType(), containsNull=False)


def id_column(field: str) -> str:
    """Name of the column that holds the dense field value id of a field."""
    return f"field_value_id_{field}"


def _sample_columns(fields: Sequence[str]) -> list[StructField]:
    return [
        _required("sample_id", StringType()),  # hash of the row's columns, "-", number of its occurrence
        _optional("row_key", StringType()),  # the user's own key; null without input.row_key
        _required("label", ByteType()),  # 0 or 1
        _required("weight", DoubleType()),  # > 0; 1 without input.weight
        _optional("date", DateType()),  # null without input.date
        _optional("true_probability", DoubleType()),  # in [0, 1], for the error against it; null without input.truth
        *(_required(id_column(field), IntegerType()) for field in fields),
    ]


# Of the row's own `parent`, as in field_value_parents: what is known of an unseen value. 0: none, or not known there.
_PARENT_ID = _required("parent_id", IntegerType())


def samples(fields: Sequence[str]) -> StructType:
    """One row per accepted input row. Unique: sample_id."""
    return StructType(
        [
            *_sample_columns(fields),
            _PARENT_ID,
            _optional("own_logit", FloatType()),  # log-odds of the user's own score; null where a predictor scores
            _required("predictor_features", _FLOATS),  # standardised; one length
            _required("predictor_category_ids", _IDS),
            _required("auxiliary_features", _FLOATS),
            _required("auxiliary_category_ids", _IDS),
            _required("split", StringType()),  # train, dev or test
        ]
    )


def scored_samples(fields: Sequence[str]) -> StructType:
    """One row per sample. Unique: sample_id."""
    return StructType(
        [
            *_sample_columns(fields),
            _PARENT_ID,
            _required("uncalibrated_logit", FloatType()),  # log-odds, within ±logit(1 - 1e-7)
            _required("auxiliary_features", _FLOATS),
            _required("auxiliary_category_ids", _IDS),
            _required("split", StringType()),
        ]
    )


def calibrated_samples(fields: Sequence[str]) -> StructType:
    """One row per sample. Unique: sample_id."""
    return StructType(
        [
            *_sample_columns(fields),
            _required("uncalibrated_logit", FloatType()),
            _required("calibrated_logit", DoubleType()),
            _required("calibrated_score", DoubleType()),  # probability
            _required("split", StringType()),
        ]
    )


# One row per (field, field value seen in train ∪ dev), and one per field for unseen values (id 0).
FIELD_VALUES = StructType(
    [
        _required("field", StringType()),
        _optional("field_value", StringType()),
        _required("value_kind", StringType()),
        _required("field_value_id", IntegerType()),  # 1 is the most frequent
        _required("n_samples", LongType()),  # in train ∪ dev
        _required("n_responses", LongType()),
    ]
)

# One row per field value seen in train ∪ dev, of the calibrated field of a run with `parent`.
FIELD_VALUE_PARENTS = StructType(
    [
        _required("field", StringType()),
        _required("field_value_id", IntegerType()),
        _optional("parent", StringType()),
        _required("parent_id", IntegerType()),  # from 1 in the order of the names; 0: none
        _required("n_parents", IntegerType()),  # with how many parents the value occurs
    ]
)

# One row per numeric feature component (mean, scale) and per category of a categorical feature (category_id ≥ 1).
FEATURE_ENCODINGS = StructType(
    [
        _required("feature", StringType()),
        _required("kind", StringType()),  # numeric or categorical
        _required("component", IntegerType()),  # place within an array feature; 0 for plain ones
        _optional("category", StringType()),
        _optional("category_id", IntegerType()),
        _optional("mean", DoubleType()),
        _optional("scale", DoubleType()),
    ]
)

# One row per distinct faulty input row.
REJECTS = StructType(
    [
        _required("reason", StringType()),  # all its faults, joined by "; "
        _required("row", StringType()),  # the input row as JSON
        _required("n_rows", LongType()),  # how often it occurs
    ]
)

# One row per (date, field, field value, cell).
LOGIT_CELLS = StructType(
    [
        _optional("date", DateType()),
        _required("field", StringType()),
        _optional("field_value", StringType()),
        _required("value_kind", StringType()),
        _required("field_value_id", IntegerType()),
        _required("cell", IntegerType()),  # floor(32 · logit)
        _required("n_samples", LongType()),
        _required("n_responses", LongType()),
        _required("sum_logit", LongType()),  # Σ round(logit · 2^20), exact on any partitioning
        _required("sum_weight", DoubleType()),
        _required("sum_weight_responses", DoubleType()),
        _required("sum_weight_logit", DoubleType()),  # Σ weight · logit, log-odds
    ]
)

# One day's logit cells as they are stored for the windows of later runs, by the raw field value: ids are a run's own.
DAY_CELLS = StructType([field for field in LOGIT_CELLS if field.name != "field_value_id"])

# One row per (field, field value, candidate number of bins, bin); id 0 is the global row.
BIN_STATISTICS = StructType(
    [
        _required("field", StringType()),
        _optional("field_value", StringType()),
        _required("value_kind", StringType()),
        _required("field_value_id", IntegerType()),
        _required("n_bins_candidate", IntegerType()),  # K asked for
        _required("n_bins", IntegerType()),  # K in effect, after equal bounds are merged
        _required("bin_index", IntegerType()),  # 0 … n_bins - 1
        _required("lower_bound", DoubleType()),  # log-odds, inclusive
        _required("upper_bound", DoubleType()),  # log-odds, exclusive
        _required("n_samples", LongType()),
        _required("n_responses", LongType()),
        _required("sum_weight", DoubleType()),
        _required("sum_weight_responses", DoubleType()),
        _optional("response_rate", DoubleType()),  # null in an empty bin
        _optional("mean_logit", DoubleType()),  # null in an empty bin
    ]
)

# One row per sample of train ∪ dev; hold_out = 1 for the rows that choose the epoch. What Petastorm streams.
TRAINING_ROWS = StructType(
    [
        _required("label", ByteType()),
        _required("weight", DoubleType()),
        _required("field_value_id", IntegerType()),  # of the calibrated field
        _required("uncalibrated_logit", FloatType()),
        _required("auxiliary_features", _FLOATS),
        _required("auxiliary_category_ids", _IDS),
        _required("hold_out", IntegerType()),
    ]
)

# One row per (field, field value, method) on the test split.
FIELD_VALUE_METRICS = StructType(
    [
        _required("field", StringType()),
        _optional("field_value", StringType()),
        _required("value_kind", StringType()),
        _required("field_value_id", IntegerType()),
        _required("method", StringType()),
        _required("n_fit_samples", LongType()),  # in train ∪ dev
        _required("n_samples", LongType()),
        _required("n_responses", LongType()),
        _required("sum_weight", DoubleType()),
        _required("sum_weight_responses", DoubleType()),
        _required("sum_weight_score", DoubleType()),  # Σ weight · score: the expected responses
        _required("log_loss", DoubleType()),  # weighted mean
    ]
)


def check_schema(actual: StructType, expected: StructType, table: str) -> None:
    """Compares columns and types and reports every discrepancy at once; the order of columns and nullability of the
    frame (which Spark widens on read) do not matter.

    Raises:
        SchemaError: names the missing, the unexpected and the wrongly typed columns of the table.
    """
    have = {field.name: field.dataType for field in actual}
    want = {field.name: field.dataType for field in expected}
    faults = [f"missing column {name} ({want[name].simpleString()})" for name in want if name not in have]
    faults += [f"unexpected column {name} ({have[name].simpleString()})" for name in have if name not in want]
    faults += [
        f"column {name} is {have[name].simpleString()}, expected {want[name].simpleString()}"
        for name in want
        if name in have and have[name].simpleString() != want[name].simpleString()
    ]
    if faults:
        raise SchemaError(f"table {table}: " + "; ".join(faults))
