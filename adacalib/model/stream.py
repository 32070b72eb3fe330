"""Streams the rows of a table to the ranks of a training: the only file that imports petastorm.

Petastorm 0.13.1 reads row groups in the order in which they stand in a file (as long as it shuffles nothing), and so
lets us deal and order the row groups ourselves: every epoch sees each row exactly once over all ranks, in an order
that depends on nothing but (seed, epoch, number of ranks), and each batch knows the files it came from.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import petastorm.reader
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from petastorm.workers_pool.thread_pool import ThreadPool

from adacalib.model.row_files import Piece, RowFiles, StreamError, deal_pieces

Array = npt.NDArray[Any]

# petastorm needs pyarrow's old dataset classes, which announce their end at every call
warnings.filterwarnings("ignore", category=FutureWarning, module=r"petastorm\..*")


class CompleteThreadPool(ThreadPool):  # type: ignore[misc]
    """Petastorm's thread pool without its race, with a limit on every wait, and with arrays from whole buffers.

    `ThreadPool.get_results` asks first whether all workers are done, then whether the ventilator (the thread that
    hands out row groups) has completed. Row groups handed out between the two questions are lost without an error.
    Here no worker is done before the ventilator has completed, so the first question settles both. It also keeps
    the round robin over the workers from skipping one that has not been given its first row group yet, which gives
    one order of rows for any number of threads.

    Petastorm takes a row group as arrays where it is given them, and else makes them from one Python object per list:
    more than half of an epoch's time with two list columns.
    """

    wait_limit_seconds = 300.0

    def current_worker_done(self, worker_id: int) -> bool:
        return self._ventilator_completed() and bool(super().current_worker_done(worker_id))

    def all_workers_done(self) -> bool:
        self._check_wait()
        return self._ventilator_completed() and bool(super().all_workers_done())

    def get_results(self) -> Any:
        self._waiting_since = time.monotonic()
        results = super().get_results()
        return _to_arrays(results) if isinstance(results, pa.Table) else results

    def join(self) -> None:
        for worker in self._workers:
            worker.join(self.wait_limit_seconds)  # a daemon thread: one stuck in a read does not hold up the end

    def _ventilator_completed(self) -> bool:
        return self._ventilator is None or bool(self._ventilator.completed())

    def _check_wait(self) -> None:
        if time.monotonic() - self._waiting_since > self.wait_limit_seconds:
            raise StreamError(
                f"no row group arrived within {self.wait_limit_seconds:g} seconds; check that the storage answers, "
                "or raise training.collective_timeout_seconds"
            )


petastorm.reader.ThreadPool = CompleteThreadPool


@dataclass(frozen=True)
class Batch:
    """Rows of one step.

    Attributes:
        columns: name → array of shape (B,) or, for a fixed-length array column, (B, length). May be read-only.
        paths: the files the rows come from.
    """

    columns: dict[str, Array]
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def stream_batches(
    files: RowFiles,
    columns: Sequence[str],
    batch_size: int,
    *,
    rank: int = 0,
    world_size: int = 1,
    seed: int = 0,
    epoch: int = 0,
    reader_threads: int = 1,
    wait_limit_seconds: float = 300.0,
) -> Iterator[Batch]:
    """Streams one rank's rows of one epoch in batches.

    Rows are shuffled inside each row group. Batches cross row groups and files, so all but the last are full.

    Args:
        columns: the columns to read; numbers or fixed-length arrays (of length 1 or more) of numbers, no nulls.
        batch_size: rows of a batch on this rank.
        seed: with `epoch` and `world_size` it decides the order of the rows.
        reader_threads: threads that read ahead; the order does not depend on it.
        wait_limit_seconds: longest wait for one row group.

    Yields:
        Batches of `batch_size` rows, the last one may be smaller; none when the rank has no rows.

    Raises:
        StreamError: a missing column, a column of strings or with nulls, a file that cannot be read, arrays of
            different lengths, a wait beyond the limit, or a file that gave fewer rows than were written to it.
    """
    pieces = deal_pieces(files, world_size, seed, epoch)[rank]
    if pieces:
        _check_columns(files.paths[0], columns)
        shuffle = np.random.default_rng([seed, epoch, rank, 1])
        chunks = _read_pieces(pieces, columns, reader_threads, wait_limit_seconds, shuffle)
        yield from _slice_batches(chunks, batch_size)


def _check_columns(path: str, columns: Sequence[str]) -> None:
    schema = pq.read_schema(path)
    faults = []
    for column in columns:
        if column not in schema.names:
            faults.append(f"column {column} is missing (there are {', '.join(schema.names)})")
            continue
        kind = schema.field(column).type
        kind = kind.value_type if pa.types.is_list(kind) else kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            faults.append(f"column {column} is of type {kind}; only numbers can be streamed, encode it before")
    if faults:
        raise StreamError(f"{path}: {'; '.join(faults)}")


def _read_pieces(
    pieces: Sequence[Piece],
    columns: Sequence[str],
    threads: int,
    wait_limit_seconds: float,
    shuffle: np.random.Generator,
) -> Iterator[Batch]:
    """Row groups as batches; the next piece is opened, and read ahead, while the current one is consumed."""
    waiting = deque(pieces)
    readers: deque[tuple[Piece, Any]] = deque()
    try:
        while waiting or readers:
            while waiting and len(readers) < 2:
                piece = waiting.popleft()
                readers.append((piece, _open_reader(piece, columns, threads, wait_limit_seconds)))
            yield from _read_piece(*readers[0], columns, shuffle)
            readers.popleft()
    finally:
        for _, reader in readers:
            reader.stop()
            reader.join()


def _open_reader(piece: Piece, columns: Sequence[str], threads: int, wait_limit_seconds: float) -> Any:
    if unusable := set(piece.path) & set("#?"):
        raise StreamError(
            f"{piece.path}: petastorm cannot open a path with {' or '.join(sorted(unusable))}; choose another runs_dir"
        )
    reader = petastorm.reader.make_batch_reader(
        f"file://{piece.path}",
        schema_fields=[f"^{re.escape(column)}$" for column in columns],
        reader_pool_type="thread",
        workers_count=threads,
        results_queue_size=4,
        shuffle_row_groups=False,
        cur_shard=piece.shard,
        shard_count=piece.shard_count,
    )
    if not isinstance(reader._workers_pool, CompleteThreadPool):
        raise StreamError("petastorm did not take the thread pool without its race; install petastorm 0.13.1")
    reader._workers_pool.wait_limit_seconds = wait_limit_seconds
    return reader


def _read_piece(piece: Piece, reader: Any, columns: Sequence[str], shuffle: np.random.Generator) -> Any:
    rows = 0
    try:
        for row_group in reader:
            chunk = {column: np.asarray(getattr(row_group, column)) for column in columns}
            order = shuffle.permutation(len(next(iter(chunk.values()))))
            rows += len(order)
            yield Batch({column: values[order] for column, values in chunk.items()}, (piece.path,))
    except StreamError as error:
        raise StreamError(f"{piece.path}: {error}") from error
    except Exception as error:  # petastorm hands on whatever its worker met
        raise StreamError(f"{piece.path}: cannot be read ({error}); run the stage that writes it again") from error
    reader.stop()
    reader.join()
    if rows != piece.rows:
        raise StreamError(f"{piece.path}: {rows} rows arrived of {piece.rows} written; nothing was trained on the rest")


def _to_arrays(table: pa.Table) -> dict[str, Array]:
    """The columns of a row group: (rows,), or (rows, length) for a column of lists."""
    return {name: _to_array(name, table.column(name)) for name in table.column_names}


def _to_array(name: str, column: pa.ChunkedArray) -> Array:
    values = column.combine_chunks()
    shape = [len(values)]
    has_nulls = values.null_count > 0
    if pa.types.is_list(column.type):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) > 1 and not has_nulls:
            raise StreamError(f"column {name} has lists of different lengths: {sorted(lengths)[:5]}")
        shape += lengths[:1]
        values = values.flatten()
    if has_nulls or values.null_count > 0:
        raise StreamError(f"column {name} holds nulls; fill or encode them before training")
    array: Array = values.to_numpy(zero_copy_only=False).reshape(shape)
    return array


def _slice_batches(chunks: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    held: list[Batch] = []
    rows = 0
    for chunk in chunks:
        start = 0
        while rows + len(chunk) - start >= batch_size:
            stop = start + batch_size - rows
            held.append(_slice(chunk, start, stop))
            yield _join(held)
            held, rows, start = [], 0, stop
        if start < len(chunk):
            held.append(_slice(chunk, start, len(chunk)))
            rows += len(chunk) - start
    if held:
        yield _join(held)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    return Batch({column: values[start:stop] for column, values in batch.columns.items()}, batch.paths)


def _join(parts: Sequence[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    columns = {column: np.concatenate([part.columns[column] for part in parts]) for column in parts[0].columns}
    return Batch(columns, tuple(dict.fromkeys(path for part in parts for path in part.paths)))
