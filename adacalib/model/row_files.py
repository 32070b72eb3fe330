"""The Parquet files of a table as the ranks of a training see them: what is in them, and which rank reads what.

A table is a folder with Parquet files and a manifest that says how many rows were written. Nothing here reads rows:
footers are enough to deal the row groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from adacalib.manifest import MANIFEST, read_manifest


class StreamError(RuntimeError):
    """The rows of a table cannot be streamed, or are not the rows that were written."""


@dataclass(frozen=True)
class RowFiles:
    """The Parquet files of a table or of one of its partitions.

    Attributes:
        name: the folder, for messages.
        paths: the files, sorted.
        row_groups: per file the number of rows of each of its row groups, from the footers.
        origin: generation of the samples and predictor behind the rows, from the manifest.
    """

    name: str
    paths: tuple[str, ...]
    row_groups: tuple[tuple[int, ...], ...]
    origin: str = ""

    @property
    def rows(self) -> int:
        """Number of rows written."""
        return sum(map(sum, self.row_groups))


@dataclass(frozen=True)
class Piece:
    """The row groups shard, shard + shard_count, … of one file: what is dealt to a rank as a whole."""

    path: str
    shard: int
    shard_count: int
    rows: int


def open_rows(table: str | Path, partition: str = "") -> RowFiles:
    """Lists the Parquet files of a table and reads their footers.

    Args:
        table: the table's folder. Files that start with `_` or `.` are not part of it.
        partition: only the files below this subfolder, for instance "split=train"; one that does not exist is a
            partition without rows.

    Raises:
        StreamError: no such table, a file that is no Parquet file, or footers that do not add up to the manifest.
    """
    table = Path(table)
    if not table.is_dir():
        raise StreamError(f"{table}: there is no such table; run the stage that writes it")
    files = _read_footers(str(table), sorted(path for path in table.rglob("*.parquet") if _is_data(path, table)))
    manifest = read_manifest(table)
    written = manifest.get("rows")
    if files.rows != written:
        raise StreamError(f"{table}: {files.rows} rows in its files, {written} in {MANIFEST}; run its stage again")
    origin = f"{manifest.get('generation')} {manifest.get('predictor_fingerprint')}"
    if not partition:
        return replace(files, origin=origin)
    below = [i for i, path in enumerate(files.paths) if Path(path).is_relative_to((table / partition).resolve())]
    return RowFiles(
        f"{table}/{partition}",
        tuple(files.paths[i] for i in below),
        tuple(files.row_groups[i] for i in below),
        origin,
    )


def repeat_rows(files: RowFiles, times: int) -> RowFiles:
    """The same files several times over, so that one epoch passes over each row so many times (at least once)."""
    return replace(files, paths=files.paths * times, row_groups=files.row_groups * times)


def join_rows(first: RowFiles, second: RowFiles) -> RowFiles:
    """The files of two partitions of one table; a row group holds rows of one of them alone."""
    return RowFiles(
        f"{first.name} and {Path(second.name).name}",
        first.paths + second.paths,
        first.row_groups + second.row_groups,
        first.origin,
    )


def deal_pieces(files: RowFiles, world_size: int, seed: int, epoch: int) -> list[list[Piece]]:
    """Deals the row groups of one epoch to the ranks.

    A file gives up to `world_size` pieces, so that one large file feeds every rank. Pieces are shuffled by (seed,
    epoch), then each goes to the rank with the fewest rows so far. A rank may get nothing.

    Returns:
        Per rank its pieces in reading order.
    """
    pieces = [
        Piece(path, shard, count, sum(groups[shard::count]))
        for path, groups in zip(files.paths, files.row_groups, strict=True)
        for count in [min(world_size, len(groups))]
        for shard in range(count)
    ]
    order = np.random.default_rng([seed, epoch]).permutation(len(pieces))
    dealt: list[list[Piece]] = [[] for _ in range(world_size)]
    rows = [0] * world_size
    for piece in (pieces[i] for i in order):
        rank = rows.index(min(rows))
        dealt[rank].append(piece)
        rows[rank] += piece.rows
    return dealt


def _is_data(path: Path, table: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in path.relative_to(table).parts)


def _read_footers(name: str, paths: Sequence[Path]) -> RowFiles:
    row_groups = []
    for path in paths:
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise StreamError(
                f"{path}: not a readable Parquet file ({error}); it may be truncated: run its stage again"
            ) from error
        row_groups.append(tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups)))
    return RowFiles(name, tuple(str(path.resolve()) for path in paths), tuple(row_groups))
