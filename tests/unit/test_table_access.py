"""The kind of a session decides how it reaches Iceberg tables."""

from __future__ import annotations

import importlib

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import CLASSIC, CONNECT, WAYS, full_name, tables_of
from dbt_streamsql.storage.iceberg.strategies.jvm import JvmTables
from dbt_streamsql.storage.iceberg.strategies.sql import SqlTables


def without_init(name):
    """A session of that class that nobody has opened."""
    module, _, kind = name.rpartition(".")
    return object.__new__(getattr(importlib.import_module(module), kind))


class Planted:
    """No session of PySpark."""


@pytest.mark.parametrize(("name", "way"), [(CLASSIC, JvmTables), (CONNECT, SqlTables)])
def test_pyspark_has_the_kinds_of_sessions_and_each_has_its_way(name, way):
    session = without_init(name)
    assert full_name(type(session)) == name
    found = tables_of(session)
    assert type(found) is way
    assert found.spark is session


def test_what_extends_a_kind_goes_its_way():
    kind = type(without_init(CLASSIC))
    own = type("Own", (kind,), {})
    assert isinstance(tables_of(object.__new__(own)), JvmTables)


@pytest.mark.parametrize("given", [Planted(), None, "spark"])
def test_a_kind_of_which_no_way_is_known_is_refused(given):
    with pytest.raises(StreamSqlError) as refused:
        metadata.load(given, None)
    assert refused.value.code == "CONNECTION"
    assert refused.value.given == full_name(type(given))
    assert refused.value.allowed.startswith(f"{CLASSIC}, {CONNECT}")


def test_another_kind_is_made_known_by_its_name(monkeypatch):
    monkeypatch.setitem(WAYS, full_name(Planted), lambda spark: ("tables of", spark))
    session = Planted()
    assert tables_of(session) == ("tables of", session)


def test_the_driver_writes_files_only_where_there_is_a_jvm():
    assert (JvmTables(None).writes_files, SqlTables(None).writes_files) == (True, False)
    with pytest.raises(NotImplementedError, match="Spark Connect"):
        SqlTables(None).commit(None, "branch", 1, None, None)
