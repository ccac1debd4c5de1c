"""A table of a real PostgreSQL that is kept equal to a query over a view."""

from __future__ import annotations

import datetime as dt
import decimal

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Retention
from dbt_streamsql.runtime.core.failpoints import SINK_STEPS
from tests.support import postgres as server_of
from tests.support.followed_postgres import connected
from tests.support.sinks import shop  # noqa: F401 - a fixture
from tests.support.steps import dying

pytestmark = [pytest.mark.spark, pytest.mark.processes]

STEPS = [step for step in SINK_STEPS if step not in ("sink.register", "sink.record")]


@pytest.fixture
def into(port, database):
    """Declares a table of the database as a target."""

    def make(table="out", **options):
        where = {"host": "127.0.0.1", "port": port, "database": database, "table": table}
        login = {"user": "postgres", "password": server_of.PASSWORD}
        return {"connector": "postgres", "options": {**where, **login, **options}}

    return make


@pytest.fixture
def rows(sql):
    def read(table="out", order="1"):
        return sql(f"SELECT * FROM {table} ORDER BY {order}").fetchall()

    return read


def refused(code, call, *arguments, **options):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code, str(caught.value)
    assert server_of.PASSWORD not in str(caught.value)
    return caught.value


def test_the_table_equals_the_query_after_every_run(engine, shop, into, rows):  # noqa: F811
    shop.sink(into(), key=["id"])
    assert rows() == shop.wanted
    for _ in range(12):
        shop.change()
        report = engine.advance()
        assert rows() == shop.wanted
        assert all(of.error is None and not of.whole for of in report.sinks.values())


def test_only_the_rows_that_changed_are_written(engine, shop, into, sql):  # noqa: F811
    shop.put({i: ("rome", i) for i in range(1, 9)})
    engine.advance()
    shop.sink(into(), key=["id"])
    before = dict(sql("SELECT id, xmin::text FROM out").fetchall())
    shop.put({3: ("oslo", 3), 4: None, 9: ("bern", 9)})
    engine.advance()
    after = dict(sql("SELECT id, xmin::text FROM out").fetchall())
    assert {i for i in after if after[i] != before.get(i)} == {3, 9}
    assert 4 not in after


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_leaves_the_table_at_a_barrier(
    engine,
    shop,  # noqa: F811
    into,
    rows,
    step,
    moment,
):
    shop.sink(into(), key=["id"])
    before = shop.wanted
    shop.put({3: ("bern", 3), 1: None})
    middle = shop.wanted
    with dying(step, moment=moment):
        engine.advance()
    assert rows() in (before, middle)
    # Back to what it was: a change that is told from too early on is not told at all.
    shop.put({3: None, 1: ("rome", 10)})
    report = engine.advance()
    assert not report.sinks[shop.name].whole
    assert rows() == shop.wanted == before


def test_a_database_that_is_down_holds_nothing_back_and_is_given_all_when_it_is_back(
    engine,
    shop,  # noqa: F811
    into,
    rows,
    sql,
    port,
    database,
):
    shop.sink(into(), key=["id"])
    with connected(port, "postgres") as admin:
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        try:
            for i in range(3, 6):
                shop.put({i: ("bern", i), i - 2: None})
                report = engine.advance()
                error = report.sinks[shop.name].error
                assert error.code == "SINK_UNREACHABLE"
                assert server_of.PASSWORD not in str(error)
                assert report.barrier == engine.store.last_committed()
        finally:
            admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    report = engine.advance()
    assert not report.sinks[shop.name].whole, "its changes were kept"
    assert rows() == shop.wanted
    assert shop.known.problem == ""


def test_a_sink_whose_changes_are_gone_compares_all_rows(engine, shop, into, rows, sql):  # noqa: F811
    shop.put({i: ("rome", i) for i in range(1, 9)})
    engine.advance()
    shop.sink(into(), key=["id"])
    before = dict(sql("SELECT id, xmin::text FROM out").fetchall())
    name = shop.name
    table = shop.view.removeprefix("lake.")
    shop.put({3: ("oslo", 3), 4: None, 9: ("bern", 9)})
    engine.begin()
    engine.create_materialized_view(
        shop.view,
        f"SELECT id, max(city) AS city, sum(amount) AS amount FROM {shop.orders} GROUP BY id",
        full_refresh=True,
    )
    # As an expiry by somebody else, between the commit and the delivery.
    with dying("sink.write"):
        engine.publish()
    engine.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table}', retain_last => 1, "
        "older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    refs = engine.spark.sql(f"SELECT name FROM {shop.view}.refs WHERE name <> 'main'").collect()
    for ref in refs:
        engine.spark.sql(f"ALTER TABLE {shop.view} DROP TAG `{ref[0]}`")
    engine.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table}', retain_last => 1, "
        "older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    assert engine.advance().sinks[name].whole
    assert rows() == shop.wanted
    after = dict(sql("SELECT id, xmin::text FROM out").fetchall())
    assert {i for i in after if after[i] != before.get(i)} == {3, 9}, "others are left alone"


def test_a_rule_of_retention_waits_for_the_sink(engine, shop, into, rows, port, database):  # noqa: F811
    shop.sink(into(), key=["id"])
    delivered = shop.known.delivered
    warehouse = engine.warehouse
    kept, warehouse.retention = warehouse.retention, Retention(0.0, 1)
    try:
        with connected(port, "postgres") as admin:
            admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
            for i in range(3, 6):
                shop.put({i: ("bern", i)})
                engine.advance()
            engine.gc()
            admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        assert warehouse.store.kept_from() <= delivered
        report = engine.advance()
        assert not report.sinks[shop.name].whole
        assert rows() == shop.wanted
        engine.gc()
        assert warehouse.store.kept_from() > delivered
    finally:
        warehouse.retention = kept


def test_it_goes_on_where_the_target_is_when_the_store_has_forgotten(
    engine,
    shop,  # noqa: F811
    into,
    rows,
):
    shop.sink(into(), key=["id"])
    shop.change()
    engine.drop_sink(shop.name)
    engine.advance()
    assert not shop.sink(into(), key=["id"]).whole
    assert rows() == shop.wanted


def test_another_query_makes_the_table_what_it_says(engine, shop, into, rows, sql):  # noqa: F811
    shop.sink(into(), key=["id"])
    done = shop.sink(into(), "SELECT id, city AS town, amount FROM {view}", key=["id"])
    assert done.whole
    assert rows() == sorted((i, *row) for i, row in shop.rows.items())
    wider = "SELECT id, city AS town, amount, amount + 1 AS more FROM {view}"
    assert "more" in refused("SINK_REFUSED", shop.sink, into(), wider, key=["id"]).given
    sql("ALTER TABLE out ADD COLUMN more int")
    shop.sink(into(), wider, key=["id"])
    assert [row[3] for row in rows()] == [row[2] + 1 for row in rows()]


def test_rows_of_others_are_not_overwritten_unasked(shop, into, rows, sql):  # noqa: F811
    sql("CREATE TABLE out (id int PRIMARY KEY, town text, amount int)")
    sql("INSERT INTO out VALUES (77, 'theirs', 1)")
    assert "--full-refresh" in refused("SINK_REFUSED", shop.sink, into(), key=["id"]).hint
    assert rows() == [(77, "theirs", 1)]
    shop.sink(into(), key=["id"], full_refresh=True)
    assert rows() == shop.wanted


def test_a_table_without_a_unique_index_of_the_key_is_refused(shop, into, sql):  # noqa: F811
    sql("CREATE TABLE out (id int, town text, amount int)")
    error = refused("SINK_REFUSED", shop.sink, into(), key=["id"])
    assert "UNIQUE INDEX" in error.hint
    sql("CREATE UNIQUE INDEX ON out (id)")
    shop.sink(into(), key=["id"])


def test_two_rows_of_one_key_are_refused_and_nothing_is_written(engine, shop, into, rows):  # noqa: F811
    query = "SELECT city AS town, amount FROM {view}"
    shop.sink(into(), query, key=["town"])
    before = rows()
    shop.put({5: ("rome", 1)})
    error = engine.advance().sinks[shop.name].error
    assert error.code == "SINK_KEY"
    assert "rome" in error.given
    assert rows() == before
    shop.put({5: None})
    assert engine.advance().sinks[shop.name].error is None
    assert rows() == before


def test_a_row_without_a_key_is_refused(engine, shop, into):  # noqa: F811
    shop.sink(into(), "SELECT nullif(city, 'bern') AS town FROM {view}", key=["town"])
    shop.put({5: ("bern", 1)})
    assert engine.advance().sinks[shop.name].error.code == "SINK_KEY"


def test_values_of_every_type_arrive_as_they_are(engine, shop, into, rows):  # noqa: F811
    view = f"{shop.view}_types"
    query = (
        "SELECT id, CAST(id AS TINYINT) AS t, CAST(12345678901 AS BIGINT) AS b, "
        "CAST(1.5 AS FLOAT) AS f, CAST('NaN' AS DOUBLE) AS d, CAST(12.340 AS DECIMAL(10,3)) AS n, "
        "'it''s \\\\ a\\ttab\\nline' AS s, id = 1 AS o, DATE '2024-02-29' AS day, "
        "TIMESTAMP '2024-01-02 03:04:05.678901+02:00' AS ts, "
        "TIMESTAMP_NTZ '2024-01-02 03:04:05.678901' AS tn, X'00FF5C' AS x, "
        "array(1, 2) AS a, named_struct('k', 'v', 'n', CAST(NULL AS INT)) AS st, "
        f"CAST(NULL AS STRING) AS nothing FROM {shop.orders}"
    )
    engine.create_materialized_view(view, query)
    name = f"{shop.name}_types"
    engine.create_sink(name, f"SELECT * FROM {view} WHERE id = 1", target=into(), key=["id"])
    (row,) = rows()
    assert str(row[4]) == "nan"
    utc = dt.timezone.utc
    assert row[:4] + row[5:] == (
        1,
        1,
        12345678901,
        1.5,
        decimal.Decimal("12.340"),
        "it's \\ a\ttab\nline",
        True,
        dt.date(2024, 2, 29),
        dt.datetime(2024, 1, 2, 1, 4, 5, 678901, tzinfo=utc),
        dt.datetime.fromisoformat("2024-01-02T03:04:05.678901"),
        b"\x00\xff\\",
        [1, 2],
        {"k": "v", "n": None},
        None,
    )


def test_days_and_times_of_every_year_arrive(engine, shop, into, sql):  # noqa: F811
    shop.put({i: ("rome", i) for i in (1, 2, 3, 4)})
    query = """
        SELECT id, d, CAST(concat(d, ' 01:02:03.4') AS TIMESTAMP) AS t,
            CAST(concat(d, ' 01:02:03.4') AS TIMESTAMP_NTZ) AS n
        FROM (SELECT id, CAST(element_at(array('0001-01-01', '0000-02-29', '+10000-01-01',
            '1850-06-01'), id) AS DATE) AS d FROM {view})"""
    zone = "spark.sql.session.timeZone"
    before = engine.spark.conf.get(zone)
    engine.spark.conf.set(zone, "America/New_York")
    try:
        engine.advance()
        shop.sink(into(), query, key=["id"])
    finally:
        engine.spark.conf.set(zone, before)
    found = sql("SELECT d::text, n::text, (t AT TIME ZONE 'UTC')::text FROM out ORDER BY id")
    # Before 1883 New York was 4:56:02 behind.
    assert found.fetchall() == [
        ("0001-01-01", "0001-01-01 01:02:03.4", "0001-01-01 05:58:05.4"),
        ("0001-02-29 BC", "0001-02-29 01:02:03.4 BC", "0001-02-29 05:58:05.4 BC"),
        ("10000-01-01", "10000-01-01 01:02:03.4", "10000-01-01 06:02:03.4"),
        ("1850-06-01", "1850-06-01 01:02:03.4", "1850-06-01 05:58:05.4"),
    ]


def test_names_are_kept_whatever_they_are(engine, shop, into, sql):  # noqa: F811
    query = 'SELECT id, city AS `a "b" {{0}} %s`, amount AS `select` FROM {view}'
    shop.sink(into(table='public.o"ut; DROP'), query, key=["id"])
    shop.put({3: ("bern", 3)})
    shop.engine.advance()
    found = sql('SELECT id, "a ""b"" {0} %s", "select" FROM "o""ut; DROP" ORDER BY 1').fetchall()
    assert found == sorted((i, *row) for i, row in shop.rows.items())


def test_an_address_of_jdbc_does_as_well(shop, port, database, rows):  # noqa: F811
    url = f"jdbc:postgresql://127.0.0.1:{port}/{database}?user=postgres"
    options = {"url": url, "table": "out", "password": server_of.PASSWORD}
    shop.sink({"connector": "jdbc", "options": options}, key=["id"])
    assert rows() == shop.wanted
    other = {"connector": "jdbc", "options": {"url": "jdbc:mysql://h/d", "table": "t"}}
    assert "jdbc:postgresql://" in refused("CONFIG_INVALID", shop.sink, other, key=["id"]).given
