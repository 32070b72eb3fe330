"""Raw table → typed input rows: expressions evaluated, every fault of a row named, nothing dropped.

One row per input row that meets `input.row_filter`. Columns: row_hash and second_hash (of all raw columns), reasons
(empty for a good row), raw_row (JSON of a faulty row), label, weight, date, row_key, true_probability, own_logit,
is_clipped, given_split, is_test_only, `field__NAME` and `category__NAME` (text), numeric (array of all numeric
components, null where the input is null).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from adacalib.config import SPLITS, InputConfig, RunConfig
from adacalib.stats.own_scores import compute_own_logit, find_score_faults, is_infinite

_SECOND_SEED = 42


def find_input_faults(raw: DataFrame, config: RunConfig) -> list[str]:
    """Checks that every expression of the configuration can be evaluated on the raw table and has a usable type.

    Returns:
        One sentence per fault, in the order of the configuration; empty when there is none.
    """
    faults = []
    for key, expression, kind in _expressions(config):
        try:
            data_type = raw.select(F.expr(expression)).schema[0].dataType
        except AnalysisException as error:
            faults.append(f"{key}: {expression!r}: {_first_sentence(error)}")
            continue
        except Exception as error:  # the parser's errors have a class of their own in each Spark version
            faults.append(f"{key}: {expression!r} is no Spark SQL expression: {_first_sentence(error)}")
            continue
        if not _is_usable(data_type, kind):
            faults.append(f"{key}: {expression!r} is {data_type.simpleString()}, expected {kind}")
    return faults


def find_array_lengths(raw: DataFrame, config: RunConfig) -> dict[str, int | None]:
    """Length of each numeric feature: None for a plain number, else the most frequent length of its arrays (the
    smaller one of two equally frequent)."""
    lengths: dict[str, int | None] = {}
    for name, expression in config.features.numeric.items():
        column = F.expr(expression)
        if not isinstance(raw.select(column).schema[0].dataType, ArrayType):
            lengths[name] = None
            continue
        sizes = raw.select(F.size(column).alias("size")).filter("size >= 0").groupBy("size").count()
        most = sizes.orderBy(F.desc("count"), "size").first()
        lengths[name] = most["size"] if most else 0
    return lengths


def filter_rows(raw: DataFrame, config: RunConfig) -> DataFrame:
    """Rows that meet `input.row_filter` (all without one); a condition that is null is not met."""
    return raw if config.input.row_filter is None else raw.filter(F.expr(config.input.row_filter))


def build_input_rows(raw: DataFrame, config: RunConfig, array_lengths: dict[str, int | None]) -> DataFrame:
    """Evaluates the configuration's expressions on each row and names its faults.

    Args:
        raw: rows that met the row filter.
        array_lengths: of `find_array_lengths`.
    """
    given = config.input
    score = _double(given.score) if given.score else None
    own_logit, is_clipped = compute_own_logit(score, given)
    numeric = {name: _numeric_array(config.features.numeric[name], length) for name, length in array_lengths.items()}
    typed = {
        "row_hash": hash_columns(raw, 0),
        "second_hash": hash_columns(raw, _SECOND_SEED),
        "label": F.expr(given.label).cast("double"),
        "weight": _double(given.weight) if given.weight else F.lit(1.0),
        "date": F.expr(given.date).try_cast("date") if given.date else F.lit(None).cast("date"),
        "row_key": _row_key(given),
        "true_probability": _double(given.truth) if given.truth else F.lit(None).cast("double"),
        "own_logit": own_logit,
        "is_clipped": is_clipped,
        "given_split": F.expr(config.split.column or "null").cast("string"),
        "is_test_only": F.coalesce(F.expr(config.split.test_only or "false"), F.lit(False)),
        "parent": F.expr(config.parent or "null").cast("string"),
        **{f"field__{field}": F.expr(_quote(field)).cast("string") for field in config.fields},
        **{f"category__{name}": F.expr(e).cast("string") for name, e in config.features.categorical.items()},
        "numeric": F.concat(*numeric.values()) if numeric else F.array().cast("array<double>"),
    }
    faults = [*_row_faults(typed, score, config), *_feature_faults(numeric, array_lengths, config)]
    is_faulty = reduce(operator.or_, (condition for condition, _ in faults))
    named = F.array_compact(F.array(*(F.when(condition, F.lit(why)) for condition, why in faults)))
    # lambdas are interpreted row by row: only faulty rows shall pay for this one
    reasons = F.when(is_faulty, named).otherwise(F.array().cast("array<string>"))
    raw_row = F.to_json(F.struct(*(F.col(_quote(name)) for name in raw.columns)))
    return raw.select(
        *(column.alias(name) for name, column in typed.items()),
        reasons.alias("reasons"),
        F.when(F.size(reasons) > 0, raw_row).alias("raw_row"),
    )


def hash_columns(raw: DataFrame, seed: int) -> Column:
    """64-bit hash of all columns of a row, whatever their order in the table.

    xxhash64 passes over nulls, so (null, "a") and ("a", null) would collide: the pattern of nulls is hashed as well.
    Nested columns are hashed by their JSON for the same reason.
    """
    columns = []
    for field in sorted(raw.schema.fields, key=lambda field: field.name):
        column = F.col(_quote(field.name))
        nested = isinstance(field.dataType, ArrayType | StructType | MapType)
        columns.append(F.to_json(F.struct(column)) if nested else column)
    nulls = F.concat(*(F.when(column.isNull(), "0").otherwise("1") for column in columns))
    return F.xxhash64(F.lit(seed), nulls, *columns)


def _expressions(config: RunConfig) -> Iterator[tuple[str, str, str]]:
    given = config.input
    for key, expression, kind in (
        ("input.row_filter", given.row_filter, "a condition"),
        ("input.label", given.label, "a number or condition"),
        ("input.score", given.score, "a number"),
        ("input.weight", given.weight, "a number"),
        ("input.date", given.date, "a date"),
        ("input.row_key", given.row_key, "a plain value"),
        ("input.truth", given.truth, "a number"),
        ("split.column", config.split.column, "text"),
        ("split.test_only", config.split.test_only, "a condition"),
        ("parent", config.parent, "a plain value"),
    ):
        if expression is not None:
            yield key, expression, kind
    for field in config.fields:
        yield "fields", _quote(field), "a plain value"
    for name, expression in config.features.numeric.items():
        yield f"features.numeric.{name}", expression, "a number or an array of numbers"
    for name, expression in config.features.categorical.items():
        yield f"features.categorical.{name}", expression, "a plain value"


def _is_usable(data_type: DataType, kind: str) -> bool:
    is_number = isinstance(data_type, NumericType)
    if kind == "a condition":
        return isinstance(data_type, BooleanType)
    if kind == "a number or condition":
        return is_number or isinstance(data_type, BooleanType)
    if kind == "a number":
        return is_number
    if kind == "a date":
        return isinstance(data_type, DateType | TimestampType | TimestampNTZType | StringType)
    if kind == "text":
        return isinstance(data_type, StringType)
    if kind == "a number or an array of numbers":
        element = data_type.elementType if isinstance(data_type, ArrayType) else data_type
        return isinstance(element, NumericType | BooleanType)
    return not isinstance(data_type, ArrayType | MapType | StructType)


def _row_faults(typed: Mapping[str, Column], score: Column | None, config: RunConfig) -> list[tuple[Column, str]]:
    """(condition, reason) for label, weight, score, date and split."""
    label, weight, split = typed["label"], typed["weight"], typed["given_split"]
    faults = [
        (label.isNull(), "label is null"),
        (~label.isin(0.0, 1.0), "label is not 0 or 1"),
        (weight.isNull() | F.isnan(weight) | (weight <= 0) | is_infinite(weight), "weight is not a positive number"),
    ]
    if score is not None:
        faults += find_score_faults(score, config.input)
    if config.input.truth:
        truth = typed["true_probability"]
        # NaN counts as larger than every number in Spark
        faults.append((truth.isNull(), "true probability is null"))
        faults.append(((truth < 0) | (truth > 1), "true probability is outside [0, 1]"))
    if config.input.date:
        faults.append((typed["date"].isNull(), "date is null or no date"))
    if config.split.column:
        faults.append((split.isNull() | ~split.isin(*SPLITS), "split is not train, dev or test"))
    return faults


def _feature_faults(
    numeric: Mapping[str, Column], array_lengths: Mapping[str, int | None], config: RunConfig
) -> list[tuple[Column, str]]:
    faults = []
    for name, values in numeric.items():
        length = array_lengths[name]
        if length is not None:
            given = F.expr(config.features.numeric[name])
            differs = given.isNull() | (F.size(given) != length)
            faults.append((differs, f"feature {name} has another length than {length}"))
        if length is None:
            value = _double(config.features.numeric[name])
            is_not_finite = F.isnan(value) | is_infinite(value)
        else:
            is_not_finite = F.exists(values, lambda x: F.isnan(x) | is_infinite(x))
        faults.append((is_not_finite, f"feature {name} is not finite"))
    return faults


def _numeric_array(expression: str, length: int | None) -> Column:
    column = F.expr(expression)
    if length is None:
        return F.array(column.cast("double"))
    return F.coalesce(column.cast("array<double>"), F.array().cast("array<double>"))


def _double(expression: str) -> Column:
    return F.expr(expression).cast("double")


def _row_key(config: InputConfig) -> Column:
    return (F.expr(config.row_key) if config.row_key else F.lit(None)).cast("string")


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _first_sentence(error: Exception) -> str:
    text = str(error).strip().splitlines()[0]
    return text.split(" SQLSTATE")[0][:300]
