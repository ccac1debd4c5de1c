"""Which columns of a sink's query are the table's own: by these a key of the table is one of it."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.sink_query import _plain, table_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName

TABLE = TableInfo(
    TableName("lake", "s", "v"),
    (Column("id", "int"), Column("City", "string"), Column("s", "struct<id:int>")),
    versioned=True,
)
PLAIN = {
    "SELECT * FROM lake.s.v": {"id": "id", "City": "City", "s": "s"},
    "SELECT id AS k, city FROM lake.s.v AS x WHERE id > 1": {"k": "id", "city": "City"},
    "SELECT x.id, x.s.id AS i, s.id AS j, id + 1 AS q FROM lake.s.v x": {"id": "id"},
    "SELECT id, upper(city) AS c FROM lake.s.v": {"id": "id"},
}
UNSEEN = {
    "WITH a AS (SELECT * FROM lake.s.v) SELECT id FROM a": ["id"],
    "SELECT id FROM (SELECT s.id FROM lake.s.v)": ["id"],
    "SELECT id, explode(split(city, ',')) AS c FROM lake.s.v": ["id", "c"],
    "SELECT id, c FROM lake.s.v LATERAL VIEW explode(split(city, ',')) e AS c": ["id", "c"],
    "SELECT id, window(ts, '2 hours', '1 hour') AS w FROM lake.s.v": ["id", "w"],
}


@pytest.mark.parametrize("query", PLAIN)
def test_a_column_that_is_the_tables_own_is_found_by_its_name_there(query):
    names = list(PLAIN[query]) if "+ 1" not in query else ["id", "i", "j", "q"]
    names += ["c"] if "upper" in query else []
    columns = tuple(Column(name, "int") for name in names)
    assert dict(_plain(query, "m", TABLE, columns)) == PLAIN[query]


@pytest.mark.parametrize("query", UNSEEN)
def test_where_rows_may_be_others_no_column_is(query):
    columns = tuple(Column(name, "int") for name in UNSEEN[query])
    assert dict(_plain(query, "m", TABLE, columns)) == {}


def test_a_query_names_one_table():
    assert table_of("select id from s.v", "m", "lake") == "lake.s.v"
    for query in ("select 1 as one", "select a.id from lake.s.a join lake.s.b using (id)"):
        with pytest.raises(StreamSqlError) as caught:
            table_of(query, "m", "lake")
        assert caught.value.code == "SQL_UNSUPPORTED"
