"""Which files of tables stay in memory, and which are read each time.

A file is kept when it can still be read after it was removed behind the process's back.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from dbt_streamsql.storage.iceberg import caching_io
from dbt_streamsql.storage.java import is_connect, java_class

pytestmark = pytest.mark.spark

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def io(spark):
    """The FileIO over that of local files."""
    if is_connect(spark):
        pytest.skip("the class would be in the server's process")
    caching_io.define(spark)
    caching_io.define(spark)  # a second session of the process
    made = java_class(spark, caching_io.CLASS)()
    made.setConf(spark.sparkContext._jsc.hadoopConfiguration())
    properties = java_class(spark, "java.util.HashMap")()
    properties.put(caching_io.BEHIND, "org.apache.iceberg.hadoop.HadoopFileIO")
    made.initialize(properties)
    return made


@pytest.fixture
def place(tmp_path):
    """The path of a new file with a name of its own that ends as asked for."""
    return lambda ending: str(tmp_path / f"00001-{uuid.uuid4()}{ending}")


def write(io, path, content):
    stream = io.newOutputFile(path).create()
    stream.write(bytearray(content))
    stream.close()


def read(io, path, length=None):
    file = io.newInputFile(path) if length is None else io.newInputFile(path, length)
    stream = file.newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def gone(io, path, length=None):
    """Whether the file cannot be read any more."""
    Path(path).unlink()
    try:
        read(io, path, length)
    except Py4JJavaError:
        return True
    return False


@pytest.mark.parametrize("ending", [".metadata.json", "-m0.avro", ".parquet", ".puffin"])
def test_what_was_written_is_kept(io, place, ending):
    path = place(ending)
    write(io, path, b"rows")
    assert Path(path).read_bytes() == b"rows"
    Path(path).unlink()
    assert read(io, path) == b"rows"
    assert io.newInputFile(path).exists()
    assert io.newInputFile(path).getLength() == 4


def test_what_was_read_is_kept(io, place):
    for path, length in ((place("-m0.avro"), None), (place(".parquet"), 4)):
        Path(path).write_bytes(b"rows")
        assert read(io, path, length) == b"rows"
        assert not gone(io, path, length)


def test_a_name_that_may_be_written_again_is_read_each_time(io, tmp_path):
    for name in ("version-hint.text", "v3.metadata.json", "part-00001.parquet"):
        path = str(tmp_path / name)
        for content in (b"old", b"new"):
            Path(path).write_bytes(content)
            assert read(io, path) == content


def test_big_files_are_read_each_time(io, place):
    rows, metadata = place(".parquet"), place(".metadata.json")
    write(io, rows, bytes(MEGABYTE + 1))
    write(io, metadata, bytes(MEGABYTE + 1))
    assert gone(io, rows, MEGABYTE + 1)
    assert not gone(io, metadata)
    huge = place(".metadata.json")
    Path(huge).write_bytes(bytes(8 * MEGABYTE + 1))
    assert len(read(io, huge)) == 8 * MEGABYTE + 1
    assert gone(io, huge)


def test_a_file_of_rows_of_unknown_size_is_not_read_as_a_whole(io, place):
    path = place(".parquet")
    Path(path).write_bytes(bytes(10))
    assert len(read(io, path)) == 10
    assert gone(io, path)


def test_what_is_deleted_through_it_is_forgotten(spark, io, place, tmp_path):
    one, two, three = place("-m0.avro"), place("-m0.avro"), place("-m0.avro")
    paths = java_class(spark, "java.util.ArrayList")()
    paths.add(two)
    for path, delete in (
        (one, lambda: io.deleteFile(one)),
        (two, lambda: io.deleteFiles(paths)),
        (three, lambda: io.deletePrefix(f"{tmp_path}/")),
    ):
        write(io, path, b"rows")
        delete()
        with pytest.raises(Py4JJavaError):
            read(io, path)
