"""Rows from Parquet files to ranks."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import petastorm.reader
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from petastorm.workers_pool import EmptyResultError
from petastorm.workers_pool.thread_pool import ThreadPool
from petastorm.workers_pool.worker_base import WorkerBase

from adacalib.manifest import TableMissing, read_manifest
from adacalib.model.row_files import RowFiles, StreamError, deal_pieces, open_rows, repeat_rows
from adacalib.model.stream import CompleteThreadPool, stream_batches
from tests.model.toy_training import toy_columns, write_rows


class EchoWorker(WorkerBase):
    """Gives each row group's number back."""

    def process(self, number: int) -> None:
        self.publish_func(number)


class LateVentilator:
    """Hands out its only row group at the worst moment: inside the question whether it has completed.

    The losing interleaving of petastorm's pool is: all workers are done (nothing was handed out yet), the row group
    is handed out, the ventilator has completed; so the pool says that there is nothing more.
    """

    def __init__(self, pool: ThreadPool) -> None:
        self.pool = pool
        self.handed_out = False

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def processed_item(self) -> None:
        pass

    def completed(self) -> bool:
        if not self.handed_out:
            self.handed_out = True
            self.pool.ventilate(number=7)
        return True


def read_all_from(pool: ThreadPool) -> list[int]:
    pool.start(EchoWorker, ventilator=LateVentilator(pool))
    results = []
    try:
        while True:
            results.append(pool.get_results())
    except EmptyResultError:
        return results
    finally:
        pool.stop()
        pool.join()


def test_the_pool_that_the_reader_uses_loses_no_row_group_in_the_losing_interleaving() -> None:
    assert read_all_from(petastorm.reader.ThreadPool(1)) == [7]


def test_petastorms_own_pool_loses_it() -> None:
    # Where this fails, petastorm has cured its race, and CompleteThreadPool can go.
    assert read_all_from(ThreadPool(1)) == []


def test_a_worker_without_its_first_row_group_is_not_skipped() -> None:
    # Two workers; the consumer asks before anything is handed out. Without the cure it moves on to worker 1 and gets
    # row group 1 before row group 0.
    pool = CompleteThreadPool(2)
    completed = threading.Event()
    ventilator = LateVentilator(pool)
    ventilator.completed = completed.is_set  # type: ignore[method-assign]
    pool.start(EchoWorker, ventilator=ventilator)
    assert not pool.current_worker_done(0)
    for number in range(4):
        pool.ventilate(number=number)
    completed.set()
    assert [pool.get_results() for _ in range(4)] == [0, 1, 2, 3]
    pool.stop()
    pool.join()


def test_a_wait_has_a_limit() -> None:
    pool = CompleteThreadPool(1)
    pool.wait_limit_seconds = 0.2
    ventilator = LateVentilator(pool)
    ventilator.completed = lambda: False  # type: ignore[method-assign]
    pool.start(EchoWorker, ventilator=ventilator)
    with pytest.raises(StreamError, match=r"within 0\.2 seconds.*raise training.collective_timeout_seconds"):
        pool.get_results()
    pool.stop()
    pool.join()


def stream(rows: RowFiles, columns: Sequence[str] = ("row_id",), batch_size: int = 8, **options: Any) -> list[Any]:
    return list(stream_batches(rows, columns, batch_size, **options))


def ids(rows: RowFiles, **options: Any) -> list[int]:
    return [int(row_id) for batch in stream(rows, **options) for row_id in batch.columns["row_id"]]


def test_batches_hold_the_rows_of_the_files_under_their_names(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "t", {"b.parquet": [5, 4], "a.parquet": [3]})
    batches = stream(rows, ["features", "row_id", "weight", "label"], batch_size=5)
    # 12 rows in batches of 5: two full ones and the rest, across row groups and files
    assert [len(batch) for batch in batches] == [5, 5, 2]
    expected = [toy_columns(*part) for part in ((5, 0), (4, 5), (3, 9))]
    order = np.concatenate([batch.columns["row_id"] for batch in batches])
    assert sorted(order) == list(range(12))
    for name in ("features", "weight", "label"):
        written = np.concatenate([part[name] for part in expected])
        streamed = np.concatenate([batch.columns[name] for batch in batches])
        assert streamed.dtype == written.dtype
        np.testing.assert_array_equal(streamed, written[order])


def test_a_batch_names_the_files_it_came_from(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "t", {"a.parquet": [5], "b.parquet": [5]})
    for batch in stream(rows, batch_size=3):
        files = {"a.parquet" if row_id < 5 else "b.parquet" for row_id in batch.columns["row_id"]}
        assert {Path(path).name for path in batch.paths} == files


def test_order_depends_on_seed_and_epoch_and_on_nothing_else(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "t", {f"{name}.parquet": [20, 20] for name in "abcd"})
    order = ids(rows, seed=1, epoch=1)
    assert order == ids(rows, seed=1, epoch=1, reader_threads=2)
    assert order == ids(rows, seed=1, epoch=1, batch_size=33)
    assert order != ids(rows, seed=1, epoch=2)
    assert order != ids(rows, seed=2, epoch=1)
    # files and rows inside a row group are both shuffled
    assert [row_id // 40 for row_id in order[::40]] != [row_id // 40 for row_id in ids(rows, seed=1, epoch=3)[::40]]
    assert order[:20] != sorted(order[:20])


def test_every_row_arrives_once_over_many_epochs_with_two_threads(tmp_path: Path) -> None:
    # 10 row groups: petastorm's own pool came back short in 2 to 25 of 60 such passes
    rows = write_rows(tmp_path / "t", {"a.parquet": [10] * 10})
    for epoch in range(30):
        assert sorted(ids(rows, epoch=epoch, reader_threads=2)) == list(range(100))


@settings(max_examples=40, deadline=None)
@given(
    row_groups=st.lists(st.lists(st.integers(0, 50), max_size=4), max_size=5),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
)
def test_every_row_group_is_dealt_to_one_rank(
    row_groups: list[list[int]], world_size: int, seed: int, epoch: int
) -> None:
    files = RowFiles("t", tuple(f"{i}" for i in range(len(row_groups))), tuple(map(tuple, row_groups)))
    dealt = deal_pieces(files, world_size, seed, epoch)
    assert len(dealt) == world_size
    # a piece is the row groups shard, shard + count, … of its file
    taken = [
        (piece.path, group)
        for pieces in dealt
        for piece in pieces
        for group in range(piece.shard, len(row_groups[int(piece.path)]), piece.shard_count)
    ]
    assert sorted(taken) == sorted(
        (f"{i}", group) for i, groups in enumerate(row_groups) for group in range(len(groups))
    )
    assert sum(piece.rows for pieces in dealt for piece in pieces) == files.rows


def test_one_large_file_feeds_every_rank() -> None:
    # 4 row groups of 10 rows, 2 ranks: shards 0 and 1 of 2, 20 rows each
    dealt = deal_pieces(RowFiles("t", ("a",), ((10, 10, 10, 10),)), 2, seed=0, epoch=0)
    assert [[piece.rows for piece in pieces] for pieces in dealt] == [[20], [20]]


def test_fewer_row_groups_than_ranks_leave_ranks_without_rows(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "t", {"a.parquet": [4], "b.parquet": [2]})
    streamed = [ids(rows, rank=rank, world_size=3) for rank in range(3)]
    assert sorted(map(len, streamed)) == [0, 2, 4]
    assert sorted(row_id for part in streamed for row_id in part) == list(range(6))


def test_a_table_without_rows_gives_no_batch(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_rows(table, {"part=1/a.parquet": [3]})
    assert stream(open_rows(table, "part=0")) == []


def test_repeated_files_are_passed_over_so_many_times(tmp_path: Path) -> None:
    once = write_rows(tmp_path / "t", {"a.parquet": [10, 4], "b.parquet": [5]})
    thrice = repeat_rows(once, 3)
    assert (thrice.rows, thrice.name, thrice.origin) == (57, once.name, once.origin)
    assert repeat_rows(once, 1) == once
    for world_size in (1, 2):
        seen = [
            int(row_id)
            for rank in range(world_size)
            for batch in stream_batches(thrice, ["row_id"], 8, rank=rank, world_size=world_size, seed=3, epoch=1)
            for row_id in batch.columns["row_id"]
        ]
        assert np.bincount(seen).tolist() == [3] * 19


def test_partitions_and_hidden_files(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_rows(table, {"split=train/a.parquet": [3, 2], "split=dev/a.parquet": [4]})
    pq.write_table(pa.table({"row_id": [1]}), table / "_hidden.parquet")
    pq.write_table(pa.table({"row_id": [1]}), table / ".hidden.parquet")
    assert open_rows(table).row_groups == ((4,), (3, 2))
    train = open_rows(table, "split=train")
    assert train.rows == 5
    assert sorted(ids(train)) == [0, 1, 2, 3, 4]
    assert train.rows == 5


def test_folders_with_spaces_and_percent_signs(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "a b%20=c", {"d 1%.parquet": [3]})
    assert sorted(ids(rows)) == [0, 1, 2]


def test_an_array_column_of_another_length_in_one_row(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_rows(table, {"a.parquet": [2]})
    pq.write_table(pa.table({"row_id": [0, 1], "features": [[1.0, 2.0], [1.0]]}), table / "a.parquet")
    with pytest.raises(StreamError, match=r"a\.parquet: column features has lists of different lengths: \[1, 2\]"):
        stream(open_rows(table), ["features"])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None]),
        pa.array([1.0, None]),  # a null number would come as NaN
        pa.array([[1, 2], [None, 4]]),
        pa.array([[1.0, 2.0], None]),
    ],
)
def test_nulls_are_refused(tmp_path: Path, values: pa.Array) -> None:
    table = tmp_path / "t"
    write_rows(table, {"a.parquet": [2]})
    pq.write_table(pa.table({"n": values}), table / "a.parquet")
    with pytest.raises(StreamError, match=r"a\.parquet: column n holds nulls; fill or encode"):
        stream(open_rows(table), ["n"])


def test_missing_columns_and_strings_are_named_at_once(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_rows(table, {"a.parquet": [2]})
    pq.write_table(pa.table({"s": ["x", "y"]}), table / "a.parquet")
    with pytest.raises(
        StreamError, match=r"column q is missing .there are s.; column s is of type string; only numbers"
    ):
        stream(open_rows(table), ["q", "s"])


def test_a_file_that_became_shorter_since_its_footer_was_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    rows = write_rows(table, {"a.parquet": [5]})
    pq.write_table(pa.table({"row_id": [1, 2]}), table / "a.parquet")
    with pytest.raises(StreamError, match=r"a\.parquet: 2 rows arrived of 5 written"):
        stream(rows)


def test_damage_inside_a_file(tmp_path: Path) -> None:
    table = tmp_path / "t"
    rows = write_rows(table, {"a.parquet": [500]})
    content = bytearray((table / "a.parquet").read_bytes())
    content[4:400] = bytes(396)  # pages of the first column; the footer stays whole
    (table / "a.parquet").write_bytes(content)
    with pytest.raises(StreamError, match=r"a\.parquet: cannot be read"):
        stream(rows)


def test_a_truncated_file(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_rows(table, {"a.parquet": [5]})
    content = (table / "a.parquet").read_bytes()
    (table / "a.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(StreamError, match=r"a\.parquet: not a readable Parquet file.*truncated: run its stage again"):
        open_rows(table)


def test_files_that_do_not_add_up_to_the_manifest(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match=r"t: 5 rows in its files, 6 in _manifest\.json"):
        write_rows(tmp_path / "t", {"a.parquet": [5]}, rows_in_manifest=6)


def test_a_table_or_manifest_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="t: there is no such table; run the stage"):
        open_rows(tmp_path / "t")
    (tmp_path / "t").mkdir()
    with pytest.raises(TableMissing, match="table t is not there; run"):
        read_manifest(tmp_path / "t")
    (tmp_path / "t" / "_manifest.json").write_text("{")
    with pytest.raises(TableMissing, match="not valid JSON"):
        read_manifest(tmp_path / "t")
    (tmp_path / "t" / "_manifest.json").write_text(json.dumps([1]))
    with pytest.raises(TableMissing, match="expected a JSON object"):
        read_manifest(tmp_path / "t")
