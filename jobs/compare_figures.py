"""What the paper's Fig. 3 and Fig. 4 are drawn from, of one seed of a comparison.

Reads  seed_S/tables/field_values (one row per field value), seed_S/tables/bin_statistics (one row per field value,
       candidate and bin), the checkpoints of AdaCalib and NeuCalib, training.json of AdaCalib in paper mode.
Writes nothing: the figures go into compare.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import expit

from adacalib import io
from adacalib.cells.functions import BinFunctions, interpolate
from adacalib.config import CalibratorConfig, RunConfig
from adacalib.report.data import name_field_value

SHOWN_BINS = 20
"""Candidate number of bins that Fig. 3 shows; the largest where it is none."""

RARER = 10
"""Fig. 3's second field value is about so many times rarer than the most frequent one."""

N_GROUPS = 10
"""Groups of field values in Fig. 4."""


def gather_figures(config: RunConfig, seed_dir: Path) -> dict[str, Any]:
    """Reads what Fig. 3 and Fig. 4 show.

    Args:
        config: the run's configuration.
        seed_dir: folder of one seed, with tables and a folder per trained calibrator.

    Returns:
        What JSON can hold. `figure_3`: a list of up to two field values, each with field_value (its name), n_samples,
        n_responses and, per bin, bin_samples, response_rate, mean_logit (log-odds), adacalib and neucalib
        (probabilities of the two functions at the bin's mean logit); null in an empty bin. `figure_4`: smallest and
        largest (the candidates) and groups, fewest positives first, each with n_values, min_responses,
        max_responses, n_smallest, n_largest; no groups where there is one candidate only.

    Raises:
        TableMissing: a table is not there.
        InputError: training.json is not there.
        ArtifactError: the checkpoint of AdaCalib or NeuCalib is not there, damaged, or of another field.
    """
    seed = config.model_copy(update={"name": seed_dir.name, "runs_dir": str(seed_dir.parent), "inputs_from": None})
    values = [row for row in _rows_of_field(io.read_arrow(seed, "field_values"), config.field) if _is_seen(row)]
    bins = _rows_of_field(io.read_arrow(seed, "bin_statistics"), config.field)
    functions = {name: _load_functions(seed_dir / name / "unified", config.field) for name in ("adacalib", "neucalib")}
    in_paper_mode = config.model_copy(update={"calibrator": CalibratorConfig(mode="paper")})
    chosen: Sequence[int] = ()
    if len(in_paper_mode.n_bins_candidates) > 1:
        chosen = io.read_json(seed_dir / "adacalib_paper" / "unified" / "training.json")["chosen_candidates"]
    return {
        "figure_3": [describe_value(row, bins, functions) for row in pick_two_values(values)],
        "figure_4": count_chosen_bins(values, chosen, in_paper_mode.n_bins_candidates),
    }


def _rows_of_field(table: pa.Table, field: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["field"], field)).to_pylist()
    return rows


def _is_seen(value: Mapping[str, Any]) -> bool:
    return bool(value["field_value_id"] > 0 and value["n_samples"] > 0)


def _load_functions(unified: Path, field: str) -> BinFunctions:
    from adacalib.model.calibrator import functions_of  # torch only when its turn comes
    from adacalib.model.checkpoint import ArtifactError
    from adacalib.model.unified import load_model

    calibrator = load_model(unified, field)[0].calibrator
    if calibrator is None:
        raise ArtifactError(f"{unified}: a predictor alone; run the comparison again without --resume")
    return functions_of(calibrator)


def pick_two_values(values: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The most frequent field value, and the one whose frequency is nearest (in ratio) to a tenth of its.

    Args:
        values: rows of field_values with n_samples > 0; of equals the smaller id is picked. One value gives one.
    """
    ordered = sorted(values, key=lambda row: (-row["n_samples"], row["field_value_id"]))
    if len(ordered) < 2:
        return ordered
    target = ordered[0]["n_samples"] / RARER
    return [ordered[0], min(ordered[1:], key=lambda row: abs(math.log(row["n_samples"] / target)))]


def describe_value(
    value: Mapping[str, Any], bins: Sequence[Mapping[str, Any]], functions: Mapping[str, BinFunctions]
) -> dict[str, Any]:
    """One panel of Fig. 3: a field value's posteriors and the functions at its bins.

    Args:
        value: row of field_values.
        bins: rows of bin_statistics.
        functions: name → functions with a row for the value's id.
    """
    candidates = {row["n_bins_candidate"] for row in bins}
    shown = SHOWN_BINS if SHOWN_BINS in candidates else max(candidates)
    own = [r for r in bins if r["field_value_id"] == value["field_value_id"] and r["n_bins_candidate"] == shown]
    own.sort(key=lambda row: row["bin_index"])
    logits = [row["mean_logit"] for row in own]
    return {
        "field_value": name_field_value(value["field_value"], value["value_kind"]),
        "n_samples": value["n_samples"],
        "n_responses": value["n_responses"],
        "bin_samples": [row["n_samples"] for row in own],
        "response_rate": [row["response_rate"] for row in own],
        "mean_logit": logits,
        **{name: _evaluate(each, value["field_value_id"], logits) for name, each in functions.items()},
    }


def _evaluate(functions: BinFunctions, field_value_id: int, logits: Sequence[float | None]) -> list[float | None]:
    filled = [k for k, logit in enumerate(logits) if logit is not None]
    ids = np.full(len(filled), field_value_id, np.int64)
    heights = expit(interpolate(functions, ids, np.array([logits[k] for k in filled], np.float64)))
    found: list[float | None] = [None] * len(logits)
    for k, height in zip(filled, heights.tolist(), strict=True):
        found[k] = height
    return found


def count_chosen_bins(
    values: Sequence[Mapping[str, Any]], chosen: Sequence[int], candidates: Sequence[int]
) -> dict[str, Any]:
    """Fig. 4: how many field values of each group chose the smallest and how many the largest number of bins.

    Args:
        values: rows of field_values.
        chosen: the number of bins chosen, by dense id (id 0 included); empty without adaptive binning.
        candidates: the numbers of bins to choose from, increasing.

    Returns:
        See `gather_figures`. The groups hold about equally many values (sizes differ by one at most), sorted by
        number of positives, ties by id; with fewer than ten values there are fewer groups.
    """
    ordered = sorted(values, key=lambda row: (row["n_responses"], row["field_value_id"])) if chosen else []
    parts = np.array_split(np.arange(len(ordered)), min(N_GROUPS, len(ordered))) if ordered else []
    groups = []
    for part in parts:
        rows = [ordered[k] for k in part]
        picked = [chosen[row["field_value_id"]] for row in rows]
        groups.append(
            {
                "n_values": len(rows),
                "min_responses": rows[0]["n_responses"],
                "max_responses": rows[-1]["n_responses"],
                "n_smallest": picked.count(candidates[0]),
                "n_largest": picked.count(candidates[-1]),
            }
        )
    return {"smallest": candidates[0], "largest": candidates[-1], "groups": groups}
