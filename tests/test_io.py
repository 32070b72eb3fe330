"""Sessions, paths, formats, publishing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from adacalib import io
from adacalib.config import RunConfig
from adacalib.io import InputError
from adacalib.manifest import TableMissing
from adacalib.schemas import SchemaError
from tests.assert_table import assert_table, collect_rows
from tests.small_runs import make_config

SCHEMA = StructType([StructField("k", LongType(), False), StructField("split", StringType(), False)])


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return make_config(tmp_path)


def make_frame(spark: SparkSession, *keys: int) -> Any:
    return spark.createDataFrame([(k, "train" if k % 2 else "test") for k in keys], SCHEMA)


def test_session_has_the_settings_of_the_file(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
    }.items():
        assert spark.conf.get(key) == value
    assert spark.range(9).repartition("id").rdd.getNumPartitions() == 3


def test_properties_file_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text(
        "# a comment\n\nspark.a   1 2\n  spark.b=x=y\nspark.c = z\nspark.d -XX:Level=1 -Dk=v\nspark.a 3\nspark.e\n"
    )
    assert io.read_spark_conf(str(file)) == {
        "spark.a": "3",
        "spark.b": "x=y",
        "spark.c": "z",
        "spark.d": "-XX:Level=1 -Dk=v",
        "spark.e": "",
    }
    assert io.read_spark_conf(None)["spark.sql.session.timeZone"] == "UTC"
    with pytest.raises(InputError, match=r"no\.conf: there is no such Spark properties file; set spark\.conf to one"):
        io.read_spark_conf(str(tmp_path / "no.conf"))


def test_table_is_written_whole_with_its_manifest_and_read_back(spark: SparkSession, config: RunConfig) -> None:
    written = io.write_table(
        make_frame(spark, 1, 2, 3), config, "t", SCHEMA, partition_by="split", facts={"predictor_fingerprint": "f"}
    )
    assert written == 3
    assert io.read_manifest(config, "t") == {"table": "t", "rows": 3, "predictor_fingerprint": "f"}
    expected = [{"k": 1, "split": "train"}, {"k": 2, "split": "test"}, {"k": 3, "split": "train"}]
    assert_table(io.read_table(spark, config, "t", SCHEMA), expected, ["k"])
    assert {file.parent.name for file in io.table_path(config, "t").rglob("*.parquet")} == {"split=train", "split=test"}
    assert sorted(io.read_arrow(config, "t", ["k"])["k"].to_pylist()) == [1, 2, 3]


def test_rerun_replaces_the_table_and_leaves_nothing_beside_it(spark: SparkSession, config: RunConfig) -> None:
    tables = io.table_path(config, "t").parent
    io.write_table(make_frame(spark, 1, 2, 3), config, "t", SCHEMA)
    (tables / ".t.of-a-killed-writer").mkdir()
    (tables / ".tt.other").mkdir()
    assert io.write_table(make_frame(spark, 5), config, "t", SCHEMA) == 1
    assert [row["k"] for row in collect_rows(io.read_table(spark, config, "t", SCHEMA))] == [5]
    assert sorted(path.name for path in tables.iterdir()) == [".tt.other", "t"]


def test_empty_table_is_a_table(spark: SparkSession, config: RunConfig) -> None:
    assert io.write_table(make_frame(spark, 1).filter("k > 9"), config, "t", SCHEMA) == 0
    assert io.read_table(spark, config, "t", SCHEMA).count() == 0


def test_failed_write_leaves_the_old_table(spark: SparkSession, config: RunConfig) -> None:
    io.write_table(make_frame(spark, 1), config, "t", SCHEMA)
    bad = make_frame(spark, 2).withColumn("k", F.raise_error(F.lit("broken row")).cast("long"))
    with pytest.raises(Exception, match="broken row"):
        io.write_table(bad, config, "t", SCHEMA)
    assert [row["k"] for row in collect_rows(io.read_table(spark, config, "t", SCHEMA))] == [1]
    assert [path.name for path in io.table_path(config, "t").parent.iterdir()] == ["t"]


def test_other_columns_are_refused_before_anything_is_written(spark: SparkSession, config: RunConfig) -> None:
    with pytest.raises(SchemaError, match=r"table t: missing column split \(string\)"):
        io.write_table(make_frame(spark, 1).drop("split"), config, "t", SCHEMA)
    assert not io.table_path(config, "t").exists()
    io.write_table(make_frame(spark, 1), config, "t", SCHEMA)
    with pytest.raises(SchemaError, match=r"tables/t: unexpected column k \(bigint\)"):
        io.read_table(spark, config, "t", StructType(SCHEMA.fields[1:]))


def test_missing_table_names_the_stage_that_writes_it(spark: SparkSession, config: RunConfig) -> None:
    message = r"tables/logit_cells: table logit_cells is not there; run `adacalib build_logit_cells` first"
    with pytest.raises(TableMissing, match=message):
        io.read_table(spark, config, "logit_cells", SCHEMA)
    io.table_path(config, "logit_cells").mkdir(parents=True)  # without a manifest: not complete
    with pytest.raises(TableMissing, match=message):
        io.read_manifest(config, "logit_cells")


def test_json_is_replaced_whole_and_refuses_nan(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.json"
    io.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        io.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


def read_with(spark: SparkSession, folder: Path, **changes: Any) -> list[dict[str, Any]]:
    return collect_rows(io.read_input(spark, make_config(folder, {"input": changes})))


def test_csv_with_its_null_and_a_zip_around_it(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("t.csv", "a,b\n1,NA\n2,x\n")
    rows = read_with(spark, tmp_path, path=str(tmp_path / "t.csv.zip"), format="csv", null_value="NA")
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_glob_reads_several_files(spark: SparkSession, tmp_path: Path) -> None:
    for i in range(3):
        pq.write_table(pa.table({"a": [i]}), tmp_path / f"{'x' if i < 2 else 'y'}{i}.parquet")
    rows = read_with(spark, tmp_path, path=str(tmp_path / "x*.parquet"))
    assert sorted(row["a"] for row in rows) == [0, 1]


def test_package_path_is_found_without_importing_it(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "shipped"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('never import me')")
    pq.write_table(pa.table({"a": [7]}), package / "t.parquet")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_with(spark, tmp_path, path="package:shipped/t.parquet") == [{"a": 7}]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.parquet", r"input.path nowhere.parquet: nothing is there; give a file, folder or glob that exists"),
        ("package:no_such_thing/x", r"package no_such_thing is not installed; pip install no_such_thing"),
        (
            "/nowhere/*.parquet",
            r"input.path /nowhere/\*\.parquet: nothing is there; give a file, folder or glob that exists",
        ),
    ],
)
def test_missing_input_says_what_to_do(spark: SparkSession, tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_with(spark, tmp_path, path=path)


def test_archive_of_two_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(InputError, match="an archive of 2 files; it must hold one table"):
        read_with(spark, tmp_path, path=str(tmp_path / "t.zip"), format="csv")


def test_a_lost_part_file_is_noticed(spark: SparkSession, config: RunConfig) -> None:
    io.write_table(make_frame(spark, 1, 2, 3, 4), config, "t", SCHEMA, partition_by="split")
    next(io.table_path(config, "t").rglob("split=test/*.parquet")).unlink()
    with pytest.raises(TableMissing, match=r"t: [123] rows in its files, 4 were written; run the stage that writes it"):
        io.read_table(spark, config, "t", SCHEMA)
    with pytest.raises(TableMissing, match="4 were written"):
        io.read_arrow(config, "t")


def test_a_failed_rename_leaves_the_old_table_in_its_place(
    spark: SparkSession, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    io.write_table(make_frame(spark, 1), config, "t", SCHEMA)
    rename = Path.rename

    def fail_into_place(self: Path, target: Path) -> Path:
        if target == io.table_path(config, "t") and ".old." not in self.name:
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_into_place)
    with pytest.raises(OSError, match="no space left"):
        io.write_table(make_frame(spark, 2), config, "t", SCHEMA)
    assert collect_rows(io.read_table(spark, config, "t", SCHEMA)) == [{"k": 1, "split": "train"}]
    assert [path.name for path in io.table_path(config, "t").parent.iterdir()] == ["t"]


def test_archive_of_a_mac_holds_one_table_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("data/", "")
        archive.writestr("data/t.csv", "a\n1\n2\n")
        archive.writestr("__MACOSX/data/._t.csv", "what the Finder knows")
    found = read_with(spark, tmp_path, path=str(tmp_path / "t.zip"), format="csv")
    assert sorted(row["a"] for row in collect_rows(found)) == [1, 2]


def test_archive_with_nothing_but_the_finders_notes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", "what the Finder knows")
    with pytest.raises(InputError, match="an archive of 0 files; it must hold one table"):
        read_with(spark, tmp_path, path=str(tmp_path / "t.zip"), format="csv")


def test_json_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    document = {"α": [0.1 + 0.2, 1e-300, None, True], "deep": {"n": 2**60}}
    io.write_json(tmp_path / "new" / "d.json", document)
    assert io.read_json(tmp_path / "new" / "d.json") == document
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["d.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"cut": [1, 2', b"\xff\xfe\x00"])
def test_json_that_is_missing_or_damaged_names_the_file_and_the_cure(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "d.json").write_bytes(content)
    with pytest.raises(InputError, match=r"d\.json: cannot be read \(.+\); run the stage that writes it again"):
        io.read_json(tmp_path / "d.json")
