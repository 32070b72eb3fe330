"""Lines of the Ali-CCP files → one row per impression, and the lines that cannot be used.

Ali-CCP (Alibaba Click and Conversion Prediction; Ma et al., "Entire Space Multi-Task Model", SIGIR 2018) is the public
set of the AdaCalib paper. It comes in two halves, train and test, of two files each:

    sample_skeleton  sample_id, click, conversion, common_feature_index, feature_num, feature_list: an impression
    common_features  common_feature_index, feature_num, feature_list: what many impressions of one user share

A feature list joins features by byte 1; a feature is `field id, byte 2, feature id, byte 3, value`. A field may be
missing or stand several times. User fields are read from common_features, all others from sample_skeleton. `lines`
below is a table of `half` (train or test) and `line`; an index or sample_id means something within its half only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

HALVES = ("train", "test")

USER_CATEGORIES = {
    "122": "user_group",  # the paper's field: category group id of the profile
    "101": "user_id",
    "121": "user_profile",
    "124": "user_gender",
    "125": "user_age",
    "126": "user_consumption_1",
    "127": "user_consumption_2",
    "128": "user_occupation",
    "129": "user_geography",
}
ITEM_CATEGORIES = {"205": "item", "206": "item_category", "207": "item_shop", "216": "item_brand", "301": "position"}
"""Fields with one value, by id: the column holds the feature id as text; the first one where the field repeats."""

USER_LISTS = {"109_14": "user_categories", "110_14": "user_shops", "127_14": "user_brands", "150_14": "user_intentions"}
ITEM_LISTS = {"210": "item_intentions"}
"""Fields with many values: column NAME_n is their number, NAME_weight the sum of their values; 0 where missing."""

ITEM_NUMBERS = {"508": "category_match", "509": "shop_match", "702": "brand_match", "853": "intention_match"}
"""Real-valued fields (the user's history with the item's category, shop, brand, intentions): the sum of the values."""

_LIST_NUMBERS = tuple(
    f"{name}_{part}" for name in (*USER_LISTS.values(), *ITEM_LISTS.values()) for part in ("n", "weight")
)
FEATURES = (*USER_CATEGORIES.values(), *ITEM_CATEGORIES.values(), *_LIST_NUMBERS, *ITEM_NUMBERS.values())
SAMPLE_COLUMNS = ("sample_id", "click", "conversion", *FEATURES, "split")

REPEATED_SAMPLE = "sample_id is repeated"
REPEATED_INDEX = "common_feature_index is repeated"
NO_COMMON_LINE = "common_feature_index has no usable line in common_features"

_NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?"  # 2 digits: always finite
_FEATURE = rf"^[0-9]+(_[0-9]+)?\x02[^\x02\x03]+\x03{_NUMBER}$"

Faults = Sequence[tuple[Column, str]]


def parse_skeleton(lines: DataFrame) -> DataFrame:
    """One row per line of sample_skeleton: half, line, sample_id, click, conversion, common_feature_index, the features
    of the impression, several (features whose field repeats though it should not) and reasons (empty for a good line).

    A line that has not 6 columns has null everywhere else; a conversion without click is a fault, as the data's authors
    say that such rows are.
    """
    cells = _split_columns(lines, ("sample_id", "click", "conversion", "common_feature_index", "feature_num", "list"))
    click, conversion = F.col("click"), F.col("conversion")
    faults = [
        (F.col("sample_id") == "", "sample_id is empty"),
        (~click.isin("0", "1"), "click is not 0 or 1"),
        (~conversion.isin("0", "1"), "conversion is not 0 or 1"),
        ((click == "0") & (conversion == "1"), "conversion without click"),
    ]
    parsed = _parse_features(cells, faults, 6)
    labels = [click.try_cast("int").alias("click"), conversion.try_cast("int").alias("conversion")]
    kept: list[str | Column] = ["half", "line", "reasons", "sample_id", *labels, "common_feature_index"]
    return _pick_features(parsed, kept, ITEM_CATEGORIES, ITEM_LISTS, ITEM_NUMBERS)


def parse_common(lines: DataFrame) -> DataFrame:
    """One row per line of common_features: half, common_feature_index, the user's features, several, reasons, and the
    line where it is faulty (a good one is long and not needed any more).

    Of an index that several lines have, none is good: which of them is right is not known.
    """
    cells = _split_columns(lines, ("common_feature_index", "feature_num", "list"))
    faults = [(F.col("common_feature_index") == "", "common_feature_index is empty")]
    parsed = _parse_features(cells, faults, 3)
    kept = ["half", "line", "reasons", "common_feature_index"]
    picked = _pick_features(parsed, kept, USER_CATEGORIES, USER_LISTS, {})
    repeated = find_repeated(cells, "common_feature_index")
    marked = add_reason(picked, repeated, REPEATED_INDEX, broadcast=True)
    return marked.withColumn("line", F.when(F.size("reasons") > 0, F.col("line")))


def find_repeated(parsed: DataFrame, key: str) -> DataFrame:
    """One row per (half, key) that more than one line has, faulty lines included."""
    counted = parsed.filter(F.col(key).isNotNull()).groupBy("half", key).agg(F.count(F.lit(1)).alias("n"))
    return counted.filter("n > 1").drop("n")


def find_orphans(skeleton: DataFrame, common: DataFrame) -> DataFrame:
    """One row per (half, common_feature_index) of the skeleton that no good line of common_features has."""
    key = ["half", "common_feature_index"]
    wanted = skeleton.select(*key).filter(F.col("common_feature_index").isNotNull()).distinct()
    return wanted.join(keep_good(common).select(*key), key, "left_anti")


def add_reason(parsed: DataFrame, faulty_keys: DataFrame, reason: str, broadcast: bool) -> DataFrame:
    """Adds a reason to the rows whose (half, key) is in faulty_keys; of a repeated key that is every row.

    Args:
        faulty_keys: half and one more column, each pair once.
        broadcast: whether faulty_keys fits into each executor's memory.
    """
    marks = faulty_keys.withColumn("is_faulty", F.lit(True))
    marked = parsed.join(F.broadcast(marks) if broadcast else marks, faulty_keys.columns, "left")
    added = F.when(F.col("is_faulty"), F.array_append("reasons", F.lit(reason))).otherwise(F.col("reasons"))
    return marked.withColumn("reasons", added).drop("is_faulty")


def keep_good(parsed: DataFrame) -> DataFrame:
    """Rows without a reason against them."""
    return parsed.filter(F.size("reasons") == 0)


def build_samples(skeleton: DataFrame, common: DataFrame, seed: int, n_partitions: int) -> DataFrame:
    """One row per good impression: `SAMPLE_COLUMNS`, and several. Unique: sample_id, which is HALF-ID.

    The paper's split: the test half is test, the train half is dealt 1:1 to train and dev, here by a seeded hash of
    sample_id (the files have no time). A missing single or real-valued field is null.

    Args:
        skeleton, common: parsed, with all reasons added. The join shuffles both; the driver sees no row.
        n_partitions: tasks of the join and files of the result.
    """
    user = keep_good(common).drop("line", "reasons").withColumnRenamed("several", "several_user")
    key = ["half", "common_feature_index"]
    joined = keep_good(skeleton).drop("line", "reasons").repartition(n_partitions, *key).join(user, key)
    joined = joined.withColumn("sample_id", F.concat("half", F.lit("-"), "sample_id"))
    is_train = F.pmod(F.xxhash64("sample_id", F.lit(seed)), F.lit(2)) == 0
    split = F.when(F.col("half") == "test", "test").when(is_train, "train").otherwise("dev")
    several = F.concat("several_user", "several").alias("several")
    return joined.withColumn("split", split).select(*SAMPLE_COLUMNS, several)


def build_rejects(skeleton: DataFrame, common: DataFrame) -> DataFrame:
    """One row per distinct faulty line of a file: file, reason (all its faults, joined by "; "), line, n_rows."""
    faulty = [
        parsed.filter(F.size("reasons") > 0).select(
            F.concat(F.lit(f"{name}_"), "half").alias("file"), F.array_join("reasons", "; ").alias("reason"), "line"
        )
        for name, parsed in (("sample_skeleton", skeleton), ("common_features", common))
    ]
    return faulty[0].unionAll(faulty[1]).groupBy("file", "reason", "line").agg(F.count(F.lit(1)).alias("n_rows"))


def count_samples(samples: DataFrame) -> DataFrame:
    """One row per split: n_samples, n_clicks, n_conversions, and per feature NAME how many rows lack it
    (missing__NAME)."""
    return samples.groupBy("split").agg(
        F.count(F.lit(1)).alias("n_samples"),
        F.sum("click").alias("n_clicks"),
        F.sum("conversion").alias("n_conversions"),
        *(F.count_if(F.col(name).isNull()).alias(f"missing__{name}") for name in FEATURES),
    )


def count_several() -> list[Column]:
    """Aggregates over rows with `several`: per single-valued feature NAME, rows in which its field repeats."""
    names = (*USER_CATEGORIES.values(), *ITEM_CATEGORIES.values())
    return [F.count_if(F.array_contains("several", name)).alias(name) for name in names]


def _split_columns(lines: DataFrame, names: Sequence[str]) -> DataFrame:
    """half, line, n_columns and the named columns as text, null where the line has not exactly as many."""
    cells = lines.select("half", "line", F.split("line", ",", -1).alias("cells"))
    n_columns = F.size("cells")
    return cells.select(
        "half",
        "line",
        n_columns.alias("n_columns"),
        *(F.when(n_columns == len(names), F.get("cells", F.lit(i))).alias(name) for i, name in enumerate(names)),
    )


def _parse_features(cells: DataFrame, faults: Faults, n_columns: int) -> DataFrame:
    """Adds features (field, feature, weight) and reasons. An empty list has no feature."""
    texts = F.when(F.col("list") == "", F.array().cast("array<string>")).otherwise(F.split("list", "\x01"))
    listed = cells.withColumn("texts", texts)
    faults = [
        (F.col("n_columns") != n_columns, f"line has not {n_columns} columns"),
        *faults,
        (F.exists("texts", lambda text: ~text.rlike(_FEATURE)), "feature_list cannot be parsed"),
        (~F.col("feature_num").try_cast("int").eqNullSafe(F.size("texts")), "feature_num is not the list's length"),
    ]
    has_columns = F.col("n_columns") == n_columns
    named = [
        F.when(condition & (has_columns if i else F.lit(True)), F.lit(why)) for i, (condition, why) in enumerate(faults)
    ]
    return listed.select(
        "*",
        F.transform("texts", _parse_feature).alias("features"),
        F.array_compact(F.array(*named)).alias("reasons"),
    )


def _parse_feature(text: Column) -> Column:
    feature = F.substring_index(F.substring_index(text, "\x02", -1), "\x03", 1)
    weight = F.substring_index(text, "\x03", -1).try_cast("double")
    return F.struct(F.substring_index(text, "\x02", 1).alias("field"), feature.alias("feature"), weight.alias("weight"))


def _pick_features(
    parsed: DataFrame,
    kept: Sequence[str | Column],
    categories: Mapping[str, str],
    lists: Mapping[str, str],
    numbers: Mapping[str, str],
) -> DataFrame:
    """The kept columns, one or two per field, and several."""
    # found first, so that no list is searched twice for one field
    names = {**categories, **lists, **numbers}
    found = parsed.select("*", *(_find("features", field).alias(f"found__{name}") for field, name in names.items()))
    picked = [F.get(f"found__{name}", F.lit(0))["feature"].alias(name) for name in categories.values()]
    for name in lists.values():
        picked += [F.size(f"found__{name}").alias(f"{name}_n"), _add_weights(f"found__{name}").alias(f"{name}_weight")]
    for name in numbers.values():
        picked.append(F.when(F.size(f"found__{name}") > 0, _add_weights(f"found__{name}")).alias(name))
    repeats = [F.when(F.size(f"found__{name}") > 1, F.lit(name)) for name in categories.values()]
    return found.select(*kept, *picked, F.array_compact(F.array(*repeats)).alias("several"))


def _find(features: str, field: str) -> Column:
    return F.filter(features, lambda feature: feature["field"] == field)


def _add_weights(features: str) -> Column:
    return F.aggregate(features, F.lit(0.0), lambda total, feature: total + feature["weight"])
