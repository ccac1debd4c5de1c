"""Databases as sources of a dbt project: after every run the models are what the database says."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys

import psycopg
import pytest

from tests.support import patience
from tests.support import postgres as server_of

SOURCES = """
    sources:
      - name: shop
        database: lake
        schema: shop_db
        tables:
          - name: orders
            config: {meta: {streamsql: {connector: postgres, connection: db, options: {table: orders}}}}
          - name: letters
            config: {meta: {streamsql: {connector: postgres, connection: db, options: {table: letters}}}}
"""
COPY = """
    {{{{ config(materialized='streaming_table', key='id', sequence_by='_seq',
               delete_when="_op = 'd'", truncate_when="_op = 't'", leave_out=['_op', '_seq']) }}}}
    select id, {columns}, _op, _seq from {{{{ source('shop', '{name}') }}}}
"""
QUERY = """
    select o.customer, count(*) as n, sum(o.amount) as total, count(o.amount) as known,
           max(md5(l.body)) as body
    from {orders} o left join {letters} l on o.id = l.id group by o.customer
"""
DYING = """
import os, signal, sys
from dbt.cli.main import cli
from dbt_streamsql.runtime.core import failpoints
def observe(step, moment):
    if (step, moment) == (sys.argv[1], "before"):
        os.kill(os.getpid(), signal.SIGKILL)
failpoints.observers.append(observe)
cli(sys.argv[2:])
"""
SLOTS = "SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots ORDER BY 1"


@pytest.fixture
def sql():
    """Run SQL in a database whose changes can be followed; its port is `sql.port`."""
    with (
        server_of.server(server_of.PASSWORD, "wal_level=logical") as port,
        psycopg.connect(
            host="127.0.0.1",
            port=port,
            user="postgres",
            password=server_of.PASSWORD,
            autocommit=True,
        ) as connection,
    ):

        def run(text, *values):
            found = connection.execute(text, values)
            return found.fetchall() if found.description else []

        run.port = port
        yield run


@pytest.fixture
def shop(project, sql, monkeypatch):
    """A project with copies of two tables, and a view over them."""
    monkeypatch.setenv("DBT_ENV_SECRET_DB", server_of.PASSWORD)
    database = {
        "host": "127.0.0.1",
        "port": sql.port,
        "database": "postgres",
        "user": "postgres",
        "password": "{{ env_var('DBT_ENV_SECRET_DB') }}",
    }
    project.profile(
        {
            "schema": "shop",
            "threads": 2,
            "warehouse": str(project.root / "warehouse"),
            "connections": {"db": database},
        }
    )
    project.write("models/sources.yml", SOURCES)
    for name, columns in (("orders", "customer, amount"), ("letters", "title, body")):
        project.write(f"models/{name}.sql", COPY.format(name=name, columns=columns))
    view = QUERY.format(orders="{{ ref('orders') }}", letters="{{ ref('letters') }}")
    project.write("models/totals.sql", "{{ config(materialized='materialized_view') }}" + view)
    sql("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12,2))")
    sql("CREATE TABLE letters (id int PRIMARY KEY, title text, body text)")
    sql("ALTER TABLE letters ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    return project


def change(sql, chance):
    """One transaction or another."""
    key = chance.randrange(30)
    amount = chance.choice([None, chance.randrange(10**6) / 100])
    letter = "".join(chance.choices("abcdefgh", k=9000))
    kind = chance.randrange(6)
    if kind == 0:
        sql("DELETE FROM orders WHERE id = %s", key)
    elif kind == 1:
        sql("UPDATE orders SET id = %s WHERE id = %s", 1000 + chance.randrange(10**6), key)
    elif kind == 2:
        sql("UPDATE letters SET title = %s WHERE id = %s", f"title {chance.random()}", key)
    elif kind == 3:
        customer = chance.choice([None, "ann", "bob", ""])
        sql(
            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET amount = %s",
            *(key, customer, amount, amount),
        )
    else:
        sql(
            "INSERT INTO letters VALUES (%s, NULL, %s) ON CONFLICT (id) DO UPDATE SET body = %s",
            *(key, letter, letter),
        )


def all_equal(project, sql):
    for table, columns in (("orders", "id, customer, amount"), ("letters", "id, title, body")):
        text = f"SELECT {columns} FROM {{}}{table}"
        stored = project.sql(text.format("lake.shop."))
        assert sorted(stored, key=repr) == sorted(sql(text.format("")), key=repr)
    rows = project.sql("SELECT customer, n, total, known, body FROM lake.shop.totals")
    expected = sql(QUERY.format(orders="orders", letters="letters"))
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


def killed(project, step):
    """Run the project in a process that is killed before a step."""
    folders = ["--project-dir", str(project.root), "--profiles-dir", str(project.root)]
    done = patience.run(
        [sys.executable, "-c", DYING, step, "--no-use-colors", "run", *folders],
        env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


@pytest.mark.processes
def test_views_over_tables_of_postgresql_equal_its_own_answer_after_every_run(shop, sql):
    chance = random.Random(9)
    for _ in range(60):
        change(sql, chance)
    done = shop.dbt("run")
    assert done.ok, done.messages
    all_equal(shop, sql)

    for _ in range(2):
        for _ in range(25):
            change(sql, chance)
        assert shop.dbt("run").ok
        all_equal(shop, sql)

    # A long value that an update leaves out, and all rows at once.
    sql("INSERT INTO letters VALUES (500, 'old', repeat(md5('x'), 1000))")
    assert shop.dbt("run").ok
    sql("UPDATE letters SET title = 'new' WHERE id = 500")
    sql("INSERT INTO orders VALUES (600, 'carl', 1)")
    sql("TRUNCATE orders")
    sql("INSERT INTO orders VALUES (500, 'dora', NULL), (501, NULL, 2.5)")
    assert shop.dbt("run").ok
    all_equal(shop, sql)
    assert shop.sql("SELECT title FROM lake.shop.letters WHERE id = 500") == [("new",)]

    for step in ("branch.write", "barrier.precommit"):
        for _ in range(25):
            change(sql, chance)
        sql("INSERT INTO orders VALUES (%s, 'eve', 3)", chance.randrange(10**7, 10**8))
        before = sql(SLOTS)
        killed(shop, step)
        assert sql(SLOTS) == before, "a slot moves on when its changes are published"
        change(sql, chance)
        assert shop.dbt("run").ok
        all_equal(shop, sql)
        assert all(now[1] != then[1] for now, then in zip(sql(SLOTS), before, strict=True))

    sql("TRUNCATE orders, letters")
    assert shop.dbt("run").ok
    all_equal(shop, sql)


@pytest.mark.processes
def test_a_slot_stays_over_a_full_refresh_and_goes_with_its_table(shop, sql):
    sql("INSERT INTO orders VALUES (1, 'ann', 2), (2, 'bob', 3)")
    assert shop.dbt("run").ok
    slots = [name for name, _ in sql(SLOTS)]
    assert len(slots) == 2
    sql("DELETE FROM orders WHERE id = 1")
    done = shop.dbt("run", "--full-refresh")
    assert done.ok, done.messages
    all_equal(shop, sql)
    assert [name for name, _ in sql(SLOTS)] == slots
    sql("INSERT INTO orders VALUES (3, 'ann', 4)")
    assert shop.dbt("run").ok
    all_equal(shop, sql)

    shop.write("models/letters.sql", "select 1 as id, 'a' as body")
    done = shop.dbt("run", "-s", "letters")
    assert done.ok, done.messages
    assert [name for name, _ in sql(SLOTS)] == [name for name in slots if "orders" in name]
    (gone,) = (name for name in slots if "letters" in name)
    assert f"the slot {gone} of table public.letters" in done.text
    assert "is removed" in done.text
    names = [name for (name,) in sql("SELECT pubname FROM pg_publication")]
    assert names == [name for name in slots if "orders" in name]


JDBC = """
    sources:
      - name: shop
        database: lake
        schema: shop_db
        tables:
          - name: orders
            config:
              meta:
                streamsql:
                  connector: jdbc
                  connection: db
                  options: {table: orders, column: changed}
          - name: countries
            config:
              meta:
                streamsql:
                  connector: jdbc
                  connection: db
                  options: {query: "select code as c, name from countries", mode: snapshot}
"""


def test_tables_of_any_database_are_followed_by_a_column_or_as_a_whole(project):
    file, chance = project.root / "shop.db", random.Random(4)
    database = sqlite3.connect(file, isolation_level=None)
    database.execute(
        "CREATE TABLE orders (id bigint, country text, amount bigint, changed bigint)"
    )
    database.execute("CREATE TABLE countries (code text, name text)")
    database.execute("INSERT INTO countries VALUES ('no', 'Norway'), ('it', 'Italy'), ('x', NULL)")
    project.profile(
        {
            "schema": "shop",
            "threads": 2,
            "warehouse": str(project.root / "warehouse"),
            "connections": {"db": {"url": f"jdbc:sqlite:{file}"}},
        }
    )
    project.write("models/sources.yml", JDBC)
    project.write(
        "models/orders.sql",
        "{{ config(materialized='streaming_table', key='id', sequence_by='changed') }}"
        "select id, country, amount, changed from {{ source('shop', 'orders') }}",
    )
    project.write(
        "models/countries.sql",
        "{{ config(materialized='streaming_table', key='code') }}"
        "select c as code, name from {{ source('shop', 'countries') }}",
    )
    query = (
        "select c.name, count(*) as n, sum(o.amount) as amount from {orders} o "
        "join {countries} c on c.code = o.country group by c.name"
    )
    view = query.format(orders="{{ ref('orders') }}", countries="{{ ref('countries') }}")
    project.write("models/totals.sql", "{{ config(materialized='materialized_view') }}" + view)
    for run in range(4):
        for n in range(12):
            key, now = chance.randrange(20), 100 * run + n
            database.execute("DELETE FROM orders WHERE id = ?", (key,))
            country, amount = chance.choice(["no", "it", "x"]), chance.choice([None, 1, 20])
            database.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", (key, country, amount, now))
        database.execute("DELETE FROM countries WHERE code = ?", (("", "x", "", "it")[run],))
        database.execute("UPDATE countries SET name = name || '!' WHERE code = 'no'")
        done = project.dbt("run")
        assert done.ok, done.messages
        rows = project.sql("SELECT name, n, amount FROM lake.shop.totals")
        expected = database.execute(query.format(orders="orders", countries="countries"))
        assert sorted(rows, key=repr) == sorted(expected.fetchall(), key=repr)
    done = project.dbt("run")
    assert done.ok, done.messages
    assert set(done.messages.values()) == {"NOOP"}
    database.close()
