"""What the storage refuses is one clear error, whoever has thrown it."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.core.storage_errors import refusal, translate_storage_errors

SPARK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""
ICEBERG = """An error occurred while calling o7291.commit.
: org.apache.iceberg.exceptions.RuntimeIOException: Failed to create file: file:/w/x.json
\tat org.apache.iceberg.hadoop.HadoopOutputFile.createOrOverwrite(HadoopOutputFile.java:87)
Caused by: java.io.FileNotFoundException: /w/x.json (Read-only file system)"""
CATALOG = """Failed to execute: INSERT INTO iceberg_tables
Caused by: org.sqlite.SQLiteException: [SQLITE_FULL] Insertion failed because database is full"""

CALLER = SimpleNamespace(_warehouse=SimpleNamespace(sessions=None))
FOLDER = "java.io.IOException: Mkdirs failed to create file:/w/s/data (exists=false)"


@pytest.mark.parametrize(
    ("error", "what", "given"),
    [
        (PySparkException(SPARK), "full", "No space left on device"),
        (Py4JError(ICEBERG), "read-only", "/w/x.json (Read-only file system)"),
        (Py4JError(CATALOG), "full", "[SQLITE_FULL] Insertion failed"),
        (Py4JError(f"failed\nCaused by: {FOLDER}"), "folder", FOLDER.partition(": ")[2]),
        (OSError(errno.EROFS, "Read-only file system", "/w/lock"), "read-only", "/w/lock"),
    ],
)
def test_it_says_what_is_refused_where_and_what_to_do(error, what, given):
    @translate_storage_errors
    def call(self):
        raise error

    with pytest.raises(StreamSqlError) as caught:
        call(CALLER)
    assert caught.value.code == "STORAGE_REFUSED"
    assert what in caught.value.message
    assert given in caught.value.given
    assert "run again" in caught.value.hint
    assert "\tat " not in str(caught.value)


def test_other_errors_stay_what_they_are():
    error = PySparkException("[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found")

    @translate_storage_errors
    def call(self):
        raise error

    with pytest.raises(PySparkException) as caught:
        call(CALLER)
    assert caught.value is error
    assert refusal(error) is None


def test_what_is_returned_and_given_is_passed_on():
    @translate_storage_errors
    def both(self, left, *, right):
        return left, right

    assert both(CALLER, 1, right=2) == (1, 2)
    assert both.__name__ == "both"
