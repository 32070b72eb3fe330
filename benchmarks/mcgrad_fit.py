"""Fits MCGrad on a run's scored samples and scores its test rows; runs in MCGrad's own environment (mcgrad.lock).

Reads  the table scored_samples of a run (one row per sample).
Writes a Parquet file, one row per sample of split test: sample_id, score__mcgrad (probability); and a JSON file with
       seconds and rounds.
MCGrad sees what AdaCalib's calibrator sees: the un-calibrated score, the calibrated field's value, the auxiliary
features (numbers standardised, which trees do not notice; categories as ids).
Everything of MCGrad is at its default: it is fitted on train and dev together, chooses its number of rounds by 5-fold
cross-validation inside (by a 40 % hold-out from 2.5 million rows on), and is then fitted on all of them. A validation
set of its own (df_val) would choose rounds on dev and never learn from dev; its guide does not ask for one.
Imports nothing of ours: pandas, pyarrow and numpy are newer here than AdaCalib's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

LABEL, SCORE, WEIGHT = "label", "uncalibrated_score", "weight"
COLUMNS = ("sample_id", "split", LABEL, WEIGHT, "uncalibrated_logit", "auxiliary_features", "auxiliary_category_ids")


class RowsError(ValueError):
    """The table of samples cannot be fitted on."""


@dataclass(frozen=True)
class Rows:
    """Samples as MCGrad takes them.

    Attributes:
        columns: name → values, all of one length: sample_id, split, label, weight, uncalibrated_score, features.
        categorical: names of the categorical features, the field value's dense id among them (0: unseen in train
            and dev).
        numeric: names of the numeric features.
    """

    columns: dict[str, npt.NDArray[Any]]
    categorical: list[str]
    numeric: list[str]


def arrange_rows(samples: pa.Table, field_column: str) -> Rows:
    """Takes the lists of features apart and turns log-odds into probabilities.

    Args:
        samples: table scored_samples.
        field_column: name of the column with the calibrated field's dense id.

    Raises:
        RowsError: a column is missing, or there are no rows.
    """
    if missing := [name for name in (*COLUMNS, field_column) if name not in samples.column_names]:
        raise RowsError(f"scored_samples has no column {', '.join(missing)}; run from score_samples again")
    if not samples.num_rows:
        raise RowsError("scored_samples has no rows; run from prepare_samples again")
    numbers, ids = _flatten(samples["auxiliary_features"]), _flatten(samples["auxiliary_category_ids"])
    numeric = {f"number_{place}": numbers[:, place].astype(np.float64) for place in range(numbers.shape[1])}
    categorical = {field_column: samples[field_column].to_numpy()}
    categorical |= {f"category_{place}": ids[:, place] for place in range(ids.shape[1])}
    columns = {name: samples[name].to_numpy() for name in (LABEL, WEIGHT)}
    # split is a folder's name, which comes back as a dictionary
    columns |= {name: np.array(samples[name].cast(pa.string()).to_pylist()) for name in ("sample_id", "split")}
    columns[SCORE] = 1 / (1 + np.exp(-samples["uncalibrated_logit"].to_numpy().astype(np.float64)))
    return Rows({**columns, **categorical, **numeric}, list(categorical), list(numeric))


def _flatten(lists: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Lists of one length as an array, one row per sample."""
    values = lists.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(len(lists), -1))


def fit_and_score(
    rows: Rows, has_weights: bool, threads: int, seed: int
) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """Fits MCGrad with its own defaults on train and dev and scores test.

    Args:
        rows: all samples.
        has_weights: whether column weight counts.
        threads: of LightGBM; its other parameters stay as MCGrad sets them.
        seed: of MCGrad's folds.

    Returns:
        Probabilities of the test rows, in their order; and what is to be told: fit_seconds (wall clock) and
        fit_cpu_seconds (of all threads) of `fit` alone, without imports and reading, predict_seconds, n_rounds, n_fit
        and n_test (rows).
    """
    import pandas as pd  # here, not above: AdaCalib's tests read this module too, where there is no MCGrad
    from mcgrad import methods

    frame, is_test = pd.DataFrame(rows.columns), rows.columns["split"] == "test"
    features = {"categorical_feature_column_names": rows.categorical, "numerical_feature_column_names": rows.numeric}
    model = methods.MCGrad(lightgbm_params={"num_threads": threads}, random_state=seed)
    started, cpu_started = time.monotonic(), time.process_time()
    model.fit(frame[~is_test], SCORE, LABEL, weight_column_name=WEIGHT if has_weights else None, **features)
    fitted, cpu_fitted = time.monotonic(), time.process_time()
    scores = np.asarray(model.predict(frame[is_test], SCORE, **features), np.float64)
    return scores, {
        "fit_seconds": fitted - started,
        "fit_cpu_seconds": cpu_fitted - cpu_started,
        "predict_seconds": time.monotonic() - fitted,
        "n_rounds": len(model.mr),
        "n_fit": int((~is_test).sum()),
        "n_test": int(is_test.sum()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; the module's docstring says what is read and written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, required=True, help="folder of the table scored_samples")
    parser.add_argument("--field-column", required=True, help="column with the calibrated field's dense id")
    parser.add_argument("--scores", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--record", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--has-weights", action="store_true", help="column weight counts")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args(arguments)
    rows = arrange_rows(pq.read_table(options.samples), options.field_column)
    scores, record = fit_and_score(rows, options.has_weights, options.threads, options.seed)
    sample_id = rows.columns["sample_id"][rows.columns["split"] == "test"]
    pq.write_table(pa.table({"sample_id": sample_id, "score__mcgrad": scores}), options.scores)
    options.record.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
