"""Streaming a run's training rows against reading the same columns of the same files with pyarrow alone.

    python benchmarks/stream.py --config configs/flights3m.yaml --times 10 --json stream.json

It runs the stages of the configuration up to training_rows where runs/NAME has not got them yet, then reads the rows of
training in turn

* stream: with the ranks' own loader (`stream_batches`: Petastorm, rows shuffled within their row group, counted);
* pyarrow: row group by row group, on as many threads, columns as numpy arrays, in file order.

Both hand on batches of the same size. The exit code is 1 where the stream takes more than 1.3 times as long.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept_run import keep_training_rows
from rich.console import Console
from turns import Bar, report, time_in_turns

from adacalib import io
from adacalib.config import RunConfig, read_config
from adacalib.model.row_files import RowFiles, open_rows, repeat_rows
from adacalib.model.stream import stream_batches

COLUMNS = ("label", "weight", "field_value_id", "uncalibrated_logit")
FEATURES = ("auxiliary_features", "auxiliary_category_ids")
BARS = (Bar("stream_over_pyarrow", "stream", "pyarrow", 1.3),)


class OtherRows(RuntimeError):
    """A way of reading gave another number of rows than the files have."""


def read_with_pyarrow(rows: RowFiles, columns: Sequence[str], batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    """Batches of numpy arrays, (rows,) or (rows, length) for lists."""
    for path in rows.paths:
        for batch in pq.ParquetFile(path).iter_batches(batch_size, columns=list(columns)):
            yield {name: _to_array(batch.column(name)) for name in columns}


def _to_array(column: pa.Array) -> np.ndarray:
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where the bar fails."""
    options = _parse(arguments)
    console = Console()
    config = read_config(options.config, options.changes)
    keep_training_rows(config, console)
    rows = repeat_rows(open_rows(io.table_path(config, "training_rows"), "hold_out=0"), options.times)
    columns = _choose_columns(config)

    def count(batches: Iterator[dict[str, np.ndarray]]) -> None:
        arrived = sum(len(batch["label"]) for batch in batches)
        if arrived != rows.rows:
            raise OtherRows(f"{arrived} rows arrived of {rows.rows}")

    steps = {
        "stream": lambda: count(_stream(rows, columns, options.batch_size, config)),
        "pyarrow": lambda: count(read_with_pyarrow(rows, columns, options.batch_size)),
    }
    seconds = time_in_turns(steps, options.repeat, console)
    facts = {"rows": rows.rows, "columns": list(columns), "batch_size": options.batch_size}
    title = f"{rows.rows:,} rows, {len(columns)} columns, batches of {options.batch_size:,}"
    return report(title, facts, seconds, BARS, console, options.json)


def _stream(
    rows: RowFiles, columns: Sequence[str], batch_size: int, config: RunConfig
) -> Iterator[dict[str, np.ndarray]]:
    batches = stream_batches(
        rows, columns, batch_size, seed=config.seed, epoch=1, reader_threads=config.training.reader_threads
    )
    return (dict(batch.columns) for batch in batches)


def _choose_columns(config: RunConfig) -> tuple[str, ...]:
    """What the training of this run reads: the feature columns that hold anything."""
    manifest = io.read_json(io.table_path(config, "samples") / "_manifest.json")
    sizes = (manifest["n_auxiliary_features"], len(manifest["auxiliary_category_counts"]))
    return (*COLUMNS, *(name for name, size in zip(FEATURES, sizes, strict=True) if size))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--times", type=int, default=1, help="copies of the rows")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
