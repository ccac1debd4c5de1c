"""Where columns come from: told right, and nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.lineage import Direct, Lineage, lineage
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.tree_json import node_of
from dbt_streamsql.quoting import TableName
from tests.differential.duck_catalog import DuckCatalog

ORDERS, USERS = "lake.t.orders", "lake.t.users"
TABLES = {
    ORDERS: {"id": "int", "user_id": "int", "amount": "int", "note": "int"},
    USERS: {"id": "int", "city": "int", "born": "int"},
}
QUERIES = (
    "SELECT id, amount + note AS x FROM lake.t.orders WHERE user_id > 2",
    """SELECT u.city, sum(o.amount) AS total, count(*) AS n FROM lake.t.orders o
    JOIN lake.t.users u ON u.id = o.user_id GROUP BY u.city""",
    "SELECT o.id, u.city FROM lake.t.orders o LEFT JOIN lake.t.users u ON u.id = o.user_id",
    """SELECT id FROM lake.t.orders o WHERE EXISTS
    (SELECT 1 FROM lake.t.users u WHERE u.id = o.user_id AND u.born > o.note)""",
    "SELECT id FROM lake.t.users UNION ALL SELECT amount FROM lake.t.orders",
    "SELECT DISTINCT city FROM lake.t.users",
    "SELECT id, rank() OVER (PARTITION BY user_id ORDER BY amount DESC) AS r FROM lake.t.orders",
    "SELECT id, amount FROM lake.t.orders ORDER BY amount DESC, id LIMIT 3",
    "SELECT max(amount) AS most FROM lake.t.orders HAVING count(*) > 1",
    """SELECT o.user_id, (SELECT max(u.born) FROM lake.t.users u WHERE u.id = o.user_id) AS b
    FROM lake.t.orders o""",
)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.t")
        for table, columns in TABLES.items():
            opened.execute(f"CREATE TABLE {table} ({', '.join(map(' '.join, columns.items()))})")
            values = ", ".join(
                f"({', '.join(str((row * (7 + at)) % 5 + at) for at in range(len(columns)))})"
                for row in range(12)
            )
            opened.execute(f"INSERT INTO {table} VALUES {values}")
        yield opened


def told(connection: duckdb.DuckDBPyConnection, sql: str) -> Lineage:
    known = {
        table: TableInfo(TableName.parse(table), tuple(Column(*each) for each in columns.items()))
        for table, columns in TABLES.items()
    }
    plan = compile_view(sql, DuckCatalog(connection, known), table="lake.t.v")
    assert plan.tree, plan.reasons
    return lineage(node_of(plan.tree))


def test_a_column_is_the_same_computed_or_aggregated(connection):
    first = told(connection, QUERIES[0])
    assert first.columns["id"] == {(ORDERS, "id"): Direct.IDENTITY}
    computed = {(ORDERS, "amount"): Direct.TRANSFORMATION, (ORDERS, "note"): Direct.TRANSFORMATION}
    assert first.columns["x"] == computed
    assert first.indirect == {"FILTER": frozenset({(ORDERS, "user_id")})}

    second = told(connection, QUERIES[1])
    assert second.columns["city"] == {(USERS, "city"): Direct.IDENTITY}
    assert second.columns["total"] == {(ORDERS, "amount"): Direct.AGGREGATION}
    assert second.columns["n"] == {}
    assert second.indirect["JOIN"] == {(USERS, "id"), (ORDERS, "user_id")}
    assert second.indirect["GROUP_BY"] == {(USERS, "city")}


def test_a_union_has_the_columns_of_all_its_inputs(connection):
    both = {(USERS, "id"): Direct.IDENTITY, (ORDERS, "amount"): Direct.IDENTITY}
    assert told(connection, QUERIES[4]).columns["id"] == both


@pytest.mark.parametrize("sql", QUERIES)
def test_a_column_that_is_not_told_can_change_without_an_effect(connection, sql):
    found = told(connection, sql)
    reads = {column for origins in found.columns.values() for column in origins}
    reads |= {column for columns in found.indirect.values() for column in columns}
    before = sorted(map(repr, connection.execute(sql).fetchall()))
    others = {(table, name) for table, columns in TABLES.items() for name in columns} - reads
    assert others
    for table, name in others:
        connection.execute(f"UPDATE {table} SET {name} = {name} * 31 + 17")
    assert sorted(map(repr, connection.execute(sql).fetchall())) == before


@pytest.mark.parametrize("sql", QUERIES)
def test_a_column_that_decides_about_no_row_changes_only_the_columns_that_name_it(connection, sql):
    found = told(connection, sql)
    decides = {column for columns in found.indirect.values() for column in columns}
    reads = {column for origins in found.columns.values() for column in origins} - decides
    names = [each[0] for each in connection.execute(sql).description]
    for table, name in reads:
        same = [at for at, each in enumerate(names) if (table, name) not in found.columns[each]]
        rows = f"SELECT * FROM ({sql})"
        before = sorted(
            repr([row[at] for at in same]) for row in connection.execute(rows).fetchall()
        )
        connection.execute(f"UPDATE {table} SET {name} = {name} * 31 + 17")
        after = sorted(
            repr([row[at] for at in same]) for row in connection.execute(rows).fetchall()
        )
        assert before == after, (table, name)
