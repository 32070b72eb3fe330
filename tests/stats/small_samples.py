"""Scored samples for the tests of transforms: drawn with numpy, and as a DataFrame of the table's columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "sample_id string, label byte, weight double, date date, field_value_id_f int, uncalibrated_logit float, "
    "auxiliary_features array<float>, auxiliary_category_ids array<int>, split string"
)


def draw_samples(n_rows: int = 400, seed: int = 1, n_values: int = 3, weighted: bool = False) -> pd.DataFrame:
    """Samples of ids 1 … n_values (the last one rare), logits as the table stores them (float32)."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_values + 1) ** 2
    logit = rng.normal(-1, 1, n_rows).astype(np.float32)
    return pd.DataFrame(
        {
            "sample_id": [f"{i:04x}-1" for i in range(n_rows)],
            "label": (rng.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(np.int8),
            "weight": rng.choice([0.5, 1.0, 1.5], n_rows) if weighted else np.ones(n_rows),
            "date": None,
            "field_value_id_f": rng.choice(np.arange(1, n_values + 1), n_rows, p=share / share.sum()).astype(np.int32),
            "uncalibrated_logit": logit,
            "auxiliary_features": [[float(i)] for i in range(n_rows)],
            "auxiliary_category_ids": [[] for _ in range(n_rows)],
            "split": rng.choice(["train", "dev"], n_rows),
        }
    )


def samples_by_hand(rows: Sequence[tuple[int, float, int]], day: date | None = None) -> pd.DataFrame:
    """From (field value id, logit, label)."""
    samples = draw_samples(len(rows))
    samples["field_value_id_f"], samples["uncalibrated_logit"], samples["label"] = zip(*rows, strict=True)
    samples["date"] = day
    return samples


def make_samples(spark: SparkSession, samples: pd.DataFrame, n_partitions: int = 2) -> DataFrame:
    rows = [tuple(row) for row in samples.itertuples(index=False)]
    plain = [tuple(x.item() if isinstance(x, np.generic) else x for x in row) for row in rows]
    return spark.createDataFrame(plain, COLUMNS).repartition(n_partitions)


def make_values(spark: SparkSession, n_values: int = 3) -> DataFrame:
    """The field_values table of field f: values v1, v2, …; a field g beside it, which must not interfere."""
    rows = [("f", None, "unseen", 0, 0, 0), ("g", "other", "value", 1, 9, 9), ("g", None, "unseen", 0, 0, 0)]
    rows += [("f", f"v{i}", "value", i, 1, 1) for i in range(1, n_values + 1)]
    return spark.createDataFrame(
        rows,
        "field string, field_value string, value_kind string, field_value_id int, n_samples long, n_responses long",
    )
