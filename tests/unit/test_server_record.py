"""The record of the warm engine, without one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.warm import discover, lifecycle, process
from dbt_streamsql.warm.locks import locked
from dbt_streamsql.warm.record import (
    Place,
    Record,
    catalog_identity,
    fingerprint,
    versions,
)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path / "cache"))
    return SessionSettings(warehouse=str(tmp_path / "warehouse"))


@pytest.fixture
def record(settings):
    """Of an engine whose process is this one; it does not answer."""
    made = Record(
        process=process.own(),
        port=1,
        warehouse=settings.warehouse,
        fingerprint=fingerprint(settings),
        versions=versions(),
        catalog=catalog_identity(settings),
        since=0.0,
        token="hush",
    )
    place = Place(settings)
    place.make()
    place.publish(made)
    return made


def test_a_record_is_read_as_it_was_written_and_does_not_show_its_token(settings, record):
    assert Place(settings).read() == record
    assert "hush" not in repr(record)
    Place(settings).withdraw()
    assert Place(settings).read() is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"process": "1-000000000000"}, "it is not running any more"),
        ({"versions": "dbt-streamsql 0.0.1"}, "different versions (dbt-streamsql 0.0.1)"),
        ({"fingerprint": "0"}, "different settings"),
        ({"catalog": "7:7"}, "its catalog was removed"),
        ({}, "does not answer on port 1"),
    ],
)
def test_an_engine_that_does_not_fit_is_ignored_and_one_line_says_what_to_do(
    settings, record, change, says, caplog
):
    Place(settings).publish(replace(record, **change))
    assert discover.warm(settings) is None
    assert len(caplog.records) == 1
    assert says in caplog.text
    assert "streamsql spark start" in caplog.text


def test_every_setting_that_changes_an_engine_changes_its_fingerprint(settings):
    others = [
        replace(settings, spark_properties={"spark.a": "1"}),
        replace(settings, spark_properties={"spark.a": "2"}),
        replace(settings, catalog_properties={"spark.a": "1"}),
        replace(settings, catalog="ice"),
        replace(settings, warehouse="/elsewhere"),
    ]
    assert len({fingerprint(one) for one in (settings, *others)}) == 6


def test_a_file_or_folder_that_others_can_open_is_not_trusted(settings, record):
    place = Place(settings)
    for path in (place.folder / "server.json", place.folder):
        before = path.stat().st_mode
        path.chmod(before | 0o004)
        assert place.read() is None, path
        path.chmod(before)
    assert place.read() is not None
    place.folder.chmod(0o750)
    with pytest.raises(StreamSqlError) as refused:
        place.make()
    assert refused.value.code == "SERVER"


def test_a_record_of_another_version_or_a_torn_one_counts_as_none(settings, record):
    file = Place(settings).folder / "server.json"
    for text in ('{"pid": 1}', '{"process": "1-0', "[]", ""):
        file.write_text(text)
        assert Place(settings).read() is None


def test_a_process_is_told_from_a_later_one_of_the_same_number():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = process.identity(child.pid)
    assert process.runs(name)
    assert name.partition("-")[2] != process.own().partition("-")[2]
    assert not process.runs(f"{child.pid}-000000000000")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.runs(name), "a zombie counts as dead"
    child.communicate()
    assert not process.runs(name)
    assert process.identity(child.pid) == ""


def test_a_lock_is_held_by_one(tmp_path):
    file = tmp_path / "lock"
    with locked(file) as first, locked(file) as second:
        assert (first, second) == (True, False)
    with locked(file) as third:
        assert third


@pytest.mark.parametrize("verb", [lifecycle.stop, lifecycle.status])
def test_a_profile_that_has_a_server_of_its_own_has_no_warm_engine(settings, verb):
    with pytest.raises(StreamSqlError) as refused:
        verb(SessionSettings(method="connect", host="h"))
    assert refused.value.code == "SERVER"
