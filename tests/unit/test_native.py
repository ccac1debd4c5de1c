"""`native: true`: where it is possible, and what runs again without native code."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from dbt_streamsql import StreamSqlError
from dbt_streamsql.adapter.session.connections import Cursor
from dbt_streamsql.runtime.spark import jars, native
from dbt_streamsql.runtime.spark.pinned_jars import NATIVE
from dbt_streamsql.runtime.spark.settings import SessionSettings

HAS_ONE = pytest.mark.skipif(
    jars.spark_version() not in NATIVE, reason=f"native code is for Spark {', '.join(NATIVE)}"
)
FAILURE = PySparkException("Job aborted: org.apache.comet.CometNativeException: no memory")


class Conf(dict):
    set = dict.__setitem__


class Session:
    def __init__(self, enabled):
        self.conf = Conf(
            {"spark.comet.enabled": enabled, "spark.plugins": "org.apache.spark.CometPlugin"}
        )


def no():
    return False


def failing(session, error, log):
    """Fails as long as native code is on."""

    def run():
        log.append(session.conf["spark.comet.enabled"])
        if session.conf["spark.comet.enabled"] == "true":
            raise error
        return "done"

    return run


def test_what_native_code_fails_runs_once_more_without_it():
    session, log = Session("false"), []
    assert native.or_without(session, failing(session, FAILURE, log), "it", nested=no) == "done"
    assert log == ["true", "false"]
    assert session.conf["spark.comet.enabled"] == "false", "as before"


def test_what_reads_nested_columns_runs_without_native_code():
    session, log = Session("true"), []
    run = failing(session, FAILURE, log)
    assert native.or_without(session, run, "it", nested=lambda: True) == "done"
    assert log == ["false"]


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        ("int", False),
        ("decimal(12,2)", False),
        ("mapped:int,structure:string>", False),
        ("id:int,s:struct<a:int>>", True),
        ("l:array<int>>", True),
        ("m:map<string,int>>", True),
        ({"type": "struct", "fields": []}, True),
    ],
)
def test_a_type_with_others_inside_is_nested(kind, nested):
    assert native.is_nested(kind) is nested


class Frame:
    """Rows that native code cannot give."""

    def __init__(self, session):
        self.conf = session.conf

    def limit(self, _):
        return self

    def collect(self):
        if self.conf["spark.comet.enabled"] == "true":
            raise FAILURE
        return [(1,), (2,)]


@pytest.mark.parametrize("fetch", ["fetchall", "fetchmany"])
def test_rows_of_a_statement_of_dbt_come_without_it_too(fetch, monkeypatch):
    monkeypatch.setattr(native, "reads_nested", lambda _: False)
    session = Session("true")
    session.sql = lambda *_, **__: Frame(session)
    cursor = Cursor(session)
    cursor.execute("SELECT 1")
    assert getattr(cursor, fetch)(*[2][: fetch == "fetchmany"]) == [(1,), (2,)]


def test_another_error_is_raised_at_once():
    session, log = Session("true"), []
    with pytest.raises(PySparkException, match="DIVIDE"):
        native.or_without(
            session, failing(session, PySparkException("DIVIDE"), log), "it", nested=no
        )
    assert log == ["true"]


def test_without_native_code_its_error_is_like_any_other():
    session = Session("false")

    def run():
        raise FAILURE

    with pytest.raises(PySparkException, match="no memory"):
        native.or_without(session, run, "it", nested=no)


@HAS_ONE
@pytest.mark.parametrize(
    ("system", "machine", "possible"),
    [
        ("Linux", "x86_64", True),
        ("Linux", "aarch64", True),
        ("Linux", "riscv64", False),
        ("Darwin", "arm64", False),
    ],
)
def test_it_needs_a_machine_that_its_jar_has_code_for(monkeypatch, system, machine, possible):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert (native.obstacle() == "") is possible
    if possible:
        assert SessionSettings(warehouse="w", native=True).native
        return
    with pytest.raises(StreamSqlError, match=f"Comet needs Linux.*{system} on {machine}"):
        SessionSettings(warehouse="w", native=True)


def test_only_the_embedded_spark_has_it():
    with pytest.raises(StreamSqlError, match="`native` is for `method: embedded`"):
        SessionSettings(method="connect", host="h", native=True)


@HAS_ONE
def test_its_jar_comes_only_when_it_is_asked_for():
    names = [[jar.artifact for jar in jars.wanted((), native=on)] for on in (False, True)]
    assert set(names[1]) - set(names[0]) == {"comet-spark-spark4.1_2.13"}
