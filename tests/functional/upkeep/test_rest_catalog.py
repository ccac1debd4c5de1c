"""Views in a REST catalog: a barrier is one commit of it, where one is to be had."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import is_connect
from tests.support.rest_catalog import of_format_2, without_transactions
from tests.support.steps import dying, observing

pytestmark = [pytest.mark.processes, pytest.mark.spark]

VIEWS = ("per_key", "totals")


@pytest.fixture
def opened(spark, rest_catalog, schema, tmp_path):
    """Opens engines over two views of a REST catalog, and closes them."""
    if is_connect(spark):
        pytest.skip("the server has its own catalogs")
    engines = []

    def session(uri=None):
        made = spark.newSession()
        for key, value in rest_catalog.settings("shared", uri).items():
            made.conf.set(key, value)
        return made

    def engine(uri=None):
        store = f"sqlite:///{tmp_path / 'meta.db'}"
        engines.append(Engine.open(spark=session(uri), catalog="shared", meta=store))
        return engines[-1]

    def sums():
        return [outside.sql(f"SELECT sum(total) FROM {base}.{view}").first()[0] for view in VIEWS]

    outside, base = session(), f"shared.{schema}"
    outside.sql(f"CREATE NAMESPACE {base}")
    outside.sql(f"CREATE TABLE {base}.sales (k INT, n INT)")
    outside.sql(f"INSERT INTO {base}.sales VALUES (1, 10), (2, 20)")
    first = engine()
    first.create_materialized_view(
        f"{base}.per_key", f"SELECT k, sum(n) AS total FROM {base}.sales GROUP BY k"
    )
    first.create_materialized_view(
        f"{base}.totals", f"SELECT count(*) AS rows, sum(n) AS total FROM {base}.sales"
    )
    yield SimpleNamespace(
        engine=engine, first=first, sql=outside.sql, sums=sums, base=base, uri=rest_catalog.uri
    )
    for one in engines:
        one.close()


def _wrong(engine, base):
    return [view for view in VIEWS if engine.verify(f"{base}.{view}")]


def test_all_tables_of_a_barrier_move_in_one_commit(opened):
    seen = {}

    def observe(step, moment):
        if step in ("publish.together", "publish.table"):
            seen.setdefault((step, moment), opened.sums())

    opened.sql(f"INSERT INTO {opened.base}.sales VALUES (2, 5), (3, 7)")
    with observing(observe):
        opened.first.advance()
    assert seen["publish.together", "before"] == [30, 30]
    assert seen["publish.together", "after"] == [42, 42]
    assert seen["publish.table", "before"] == [42, 42]
    assert _wrong(opened.first, opened.base) == []
    refs = opened.sql(f"SELECT name, type FROM {opened.base}.per_key.refs").collect()
    assert [row.name for row in refs if row.type == "BRANCH"] == ["main"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_dies_around_that_commit_leaves_a_barrier_that_is_published(opened, moment):
    opened.sql(f"INSERT INTO {opened.base}.sales VALUES (2, 5), (3, 7)")
    with dying("publish.together", moment=moment):
        opened.first.advance()
    opened.first.close()
    again = opened.engine()
    again.advance()
    assert opened.sums() == [42, 42]
    assert _wrong(again, opened.base) == []


def test_a_table_that_somebody_else_has_changed_is_overwritten_and_told(opened, caplog):
    written = []

    def observe(step, moment):
        if (step, moment) == ("publish.together", "before") and not written:
            written.append(opened.sql(f"DELETE FROM {opened.base}.per_key WHERE k = 1"))

    opened.sql(f"INSERT INTO {opened.base}.sales VALUES (3, 7)")
    with observing(observe), caplog.at_level(logging.WARNING):
        opened.first.advance()
    assert written
    assert any("did not commit 2 tables at once" in told for told in caplog.messages)
    assert any("modified outside dbt-streamsql" in told for told in caplog.messages)
    assert opened.sums() == [37, 37]
    assert _wrong(opened.first, opened.base) == []


def test_a_server_without_transactions_gets_the_tables_one_by_one(opened, caplog):
    opened.first.close()
    with without_transactions(opened.uri) as uri:
        engine = opened.engine(uri)
        for number in (1, 2, 3):
            opened.sql(f"INSERT INTO {opened.base}.sales VALUES (3, 7)")
            engine.advance()
            assert opened.sums() == [30 + 7 * number] * 2
            assert _wrong(engine, opened.base) == []
    asked = [told for told in caplog.messages if "did not commit 2 tables at once" in told]
    assert len(asked) == 2, "it is not asked a third time"


def test_a_server_that_makes_tables_of_an_older_format_is_refused_at_once(opened):
    opened.first.close()
    with of_format_2(opened.uri) as uri:
        engine = opened.engine(uri)
        with pytest.raises(StreamSqlError) as caught:
            engine.create_materialized_view(
                f"{opened.base}.counted", f"SELECT count(*) AS n FROM {opened.base}.sales"
            )
    assert caught.value.code == "FORMAT_VERSION"
    assert "format version 2" in caught.value.given
    staged = opened.sql("SHOW TABLES IN shared.__streamsql_staging").collect()
    assert [row.tableName for row in staged] == []
