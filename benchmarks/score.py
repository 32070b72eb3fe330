"""Scoring: what a calibrator costs per row, beside handing the rows over to Python workers and doing nothing with them.

    python benchmarks/score.py --rows 20000000 --json score.json

On one generated table of scored samples with 8 numbers and 2 categories (kept under --runs-dir) it times, each --repeat
times in turn, without writing the result:

* hand_over: a mapInArrow that only counts;
* network: predictor aside, the unified checkpoint with an auxiliary network of the default size, in Arrow batches;
* arrow: the checkpoint without network, in Arrow batches as well;
* expressions: the same checkpoint as column expressions, which is how it is served (jobs/calibrate_samples.py).

Both checkpoints calibrate alike, or it ends with an error: expressions and arrow must agree within 1e-6 in logit. The
exit code is 1 where a bar fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from scored_rows import draw_uniform, keep_scored_rows, keep_table, make_field_values
from turns import Bar, make_parser, report, time_in_turns

from adacalib import io, schemas
from adacalib.cells.bin_bounds import compute_bin_bounds
from adacalib.cells.field_part import FieldFit, RobustSwitches, fit_field_part
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.config import AuxiliaryConfig, SparkConfig
from adacalib.model.auxiliary import AuxiliaryNetwork, AuxiliaryShape, build_auxiliary
from adacalib.model.calibrator import Calibrator, functions_of
from adacalib.model.score import build_scorer
from adacalib.model.unified import UnifiedModel, load_model, publish_unified
from adacalib.stats.calibrated_samples import calibrate_by_functions
from adacalib.stats.logit_cells import build_logit_cells
from adacalib.stats.scored_samples import score_batches

N_NUMBERS = 8
CATEGORY_COUNTS = (100, 10)
BARS = (
    Bar("expressions_over_arrow", "expressions", "arrow", 1 / 3),
    Bar("network_over_hand_over", "network", "hand_over"),
    Bar("arrow_over_hand_over", "arrow", "hand_over"),
)
TOLERANCE = 1e-6


class DifferentScores(RuntimeError):
    """Two ways of scoring disagree."""


def add_sample_columns(rows: DataFrame) -> DataFrame:
    """Scored rows with the other columns of scored_samples, features among them, each a function of the row."""
    own = F.xxhash64("field_value_id_f", "uncalibrated_logit", "label")
    numbers = [draw_uniform(own, 10 + i) * 3.4 - 1.7 for i in range(N_NUMBERS)]
    ids = [F.floor(draw_uniform(own, 30 + i) * count) for i, count in enumerate(CATEGORY_COUNTS)]
    return rows.withColumns(
        {
            "sample_id": F.concat(F.lower(F.hex(own)), F.lit("-1")),
            "row_key": F.lit(None).cast("string"),
            "true_probability": F.lit(None).cast("double"),
            "parent_id": F.lit(0),
            "auxiliary_features": F.array(*numbers).cast("array<float>"),
            "auxiliary_category_ids": F.array(*ids).cast("array<int>"),
            "split": F.lit("test"),
        }
    ).select(*schemas.scored_samples(["f"]).fieldNames())


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = make_parser(__doc__).parse_args(arguments)
    console = Console()
    with ExitStack() as cleanup:
        spark = io.start_session(SparkConfig(master="local[2]"), "benchmark of scoring")
        cleanup.callback(spark.stop)
        lean = spark.read.parquet(
            str(keep_scored_rows(spark, options.runs_dir / "scored_rows", options.rows, options.field_values))
        )
        path = options.runs_dir / "scored_samples" / f"{options.rows}-{options.field_values}"
        samples = spark.read.parquet(str(keep_table(path, lambda: add_sample_columns(lean))))
        steps = _list_steps(samples, _publish_checkpoints(spark, lean, options))
        seconds = time_in_turns(steps, options.repeat, console)
    facts = {"rows": options.rows, "field_values": options.field_values}
    title = f"{options.rows:,} rows, {options.field_values:,} field values"
    return report(title, facts, seconds, BARS, console, options.json)


def _publish_checkpoints(spark: SparkSession, lean: DataFrame, options: argparse.Namespace) -> dict[str, Path]:
    """Checkpoints with and without network, the field part fitted on the rows."""
    values = make_field_values(spark, options.field_values)
    table = build_logit_cells(lean, values, "f", has_weights=False).toArrow().drop_columns(["date"])
    names = ("field_value_id", "cell", "n_samples", "n_responses", "sum_weight", "sum_weight_responses")
    columns = {name: table[name].to_numpy() for name in (*names, "sum_weight_logit")}
    n_values = options.field_values + 1
    bounds = compute_bin_bounds(cells_from_columns(columns, n_values), 20)
    fit = fit_field_part(columns, n_values, bounds, RobustSwitches(), seed=1)
    folder = options.runs_dir / "score"
    paths = {"network": folder / "network", "plain": folder / "plain"}
    for name, path in paths.items():
        auxiliary = _build_network(fit) if name == "network" else None
        calibrator = Calibrator(fit.functions, np.zeros(n_values), fit.mean_logit, auxiliary)
        publish_unified(path, UnifiedModel(None, calibrator, "f"), {}, {})
    return paths


def _build_network(fit: FieldFit) -> AuxiliaryNetwork:
    """Of the default size; what it says does not matter to what it costs."""
    torch.manual_seed(1)
    mean_label = 1 / (1 + np.exp(-fit.mean_logit))
    shape = AuxiliaryShape(N_NUMBERS, CATEGORY_COUNTS)
    return build_auxiliary(AuxiliaryConfig(), shape, fit.weight_V, mean_label, takes_logit=True)


def _list_steps(samples: DataFrame, checkpoints: dict[str, Path]) -> dict[str, Callable[[], Any]]:
    schema = schemas.calibrated_samples(["f"])
    scorers = {name: build_scorer(path, "f", schema.fieldNames())[0] for name, path in checkpoints.items()}
    plain = load_model(checkpoints["plain"], "f")[0].calibrator
    assert plain is not None

    def by_arrow(rows: DataFrame, name: str) -> DataFrame:
        return score_batches(rows, scorers[name], schema)

    def by_expressions(rows: DataFrame) -> DataFrame:
        return calibrate_by_functions(rows, functions_of(plain), ["f"])

    # nested: a nested function travels to the workers by value
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})

    _compare(*(how(_take_few(samples)) for how in (partial(by_arrow, name="plain"), by_expressions)))
    return {
        "hand_over": lambda: _run(samples.mapInArrow(count, "n long")),
        "network": lambda: _run(by_arrow(samples, "network")),
        "arrow": lambda: _run(by_arrow(samples, "plain")),
        "expressions": lambda: _run(by_expressions(samples)),
    }


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _take_few(samples: DataFrame) -> DataFrame:
    """About 20,000 rows, by a hash."""
    every = max(1, samples.count() // 20_000)
    return samples.filter(F.pmod(F.xxhash64("sample_id", F.lit(1)), F.lit(every)) == 0)


def _compare(one: DataFrame, other: DataFrame) -> None:
    found, expected = (
        frame.select("calibrated_logit")
        .orderBy("sample_id", "calibrated_logit")
        .toArrow()["calibrated_logit"]
        .to_numpy()
        for frame in (other, one)
    )
    if len(found) != len(expected) or not len(found) or np.abs(found - expected).max() > TOLERANCE:
        raise DifferentScores("expressions and Arrow batches calibrate differently: look at calibrate_by_functions")


if __name__ == "__main__":
    sys.exit(main())
