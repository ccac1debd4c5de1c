"""What Spark reads is kept, whether the compiler follows it or not."""

from __future__ import annotations

import pytest

from dbt_streamsql import StreamSqlError

pytestmark = pytest.mark.spark

RECURSIVE = (
    "WITH RECURSIVE up(n) MAX RECURSION LEVEL 9 AS (SELECT 1 UNION ALL SELECT n + 1 FROM up "
    "WHERE n < 3) SELECT t.id, n FROM {t} t JOIN up ON up.n = t.id"
)
TEXTS = {
    "a snapshot": "SELECT id, v FROM {t} VERSION AS OF {first}",
    "a snapshot and now": "SELECT t.id, o.v FROM {t} t JOIN {t} FOR VERSION AS OF {first} o "
    "ON o.id = t.id",
    "in a sub-query": "SELECT id, (SELECT count(*) FROM {t} VERSION AS OF {first}) AS n FROM {t}",
    "a tag": "SELECT * FROM {t} FOR SYSTEM_VERSION AS OF 'then'",
    "a branch": "SELECT * FROM {t} VERSION AS OF 'aside' x",
    "a time": "SELECT * FROM {t} TIMESTAMP AS OF '{later}'",
    "a sample": "SELECT t.id FROM {t} TABLESAMPLE (100 PERCENT)",
    "a sample that is repeated": "SELECT x.id FROM {t} TABLESAMPLE (100 PERCENT) REPEATABLE (1) x",
    "snapshots": "SELECT snapshot_id FROM {t}.snapshots",
    "the part of a branch": "SELECT s.id FROM {t}.branch_aside s",
    "a sample behind a pipe": "FROM {t} |> TABLESAMPLE (100 PERCENT) |> WHERE id > 0",
    "a table beside what is not read": "SELECT id >>> 1 FROM (TABLE {t})",
    "recursion": RECURSIVE,
}


@pytest.fixture
def given(spark, engine, schema):
    """A table with a tag and a branch, and what the texts say of it."""
    table = f"lake.{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id INT, v INT)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    spark.sql(f"ALTER TABLE {table} CREATE TAG then")
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH aside")
    first, later = spark.sql(
        f"SELECT snapshot_id, current_timestamp() FROM {table}.snapshots"
    ).first()
    return {"t": table, "first": first, "later": later}


def _rows(spark, query):
    return sorted(map(tuple, spark.sql(query).collect()))


def test_a_view_of_a_text_that_is_not_followed_is_refreshed_in_full(spark, engine, schema, given):
    views = {}
    for number, text in enumerate(TEXTS.values()):
        views[f"lake.{schema}.v{number}"] = text.format(**given)
    for name, query in views.items():
        report = engine.create_materialized_view(name, query)
        assert report.mode == "full", query
        assert engine.explain(name).startswith(f"{name}: full refresh"), query
    for change in (
        f"INSERT INTO {given['t']} VALUES (3, 30)",
        f"INSERT INTO {given['t']}.branch_aside VALUES (4, 40)",
        f"ALTER TABLE {given['t']} REPLACE TAG then",
        f"DELETE FROM {given['t']} WHERE id = 1",
    ):
        spark.sql(change)
        engine.advance()
        for name, query in views.items():
            assert _rows(spark, f"SELECT * FROM {name}") == _rows(spark, query), (change, query)


def test_a_query_over_a_view_reads_its_barrier_in_every_text(spark, engine, schema, given):
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, f"SELECT id, sum(v) AS v FROM {given['t']} GROUP BY id")
    whole = [(1, 10), (2, 20)]
    for query in (
        "SELECT v.* FROM {v} TABLESAMPLE (100 PERCENT)",
        "SELECT * FROM {v} TABLESAMPLE (100 PERCENT) REPEATABLE (2) x WHERE x.id > 0",
        "TABLE {v}",
        "FROM {v} |> SET v = v + 0",
        "SELECT * FROM (TABLE {v})",
        "TABLE {v} |> TABLESAMPLE (100 PERCENT) |> WHERE v.id >>> 40 = 0",
        "FROM {v} |> JOIN (TABLE {v}) w USING (id) |> SELECT v.id, w.v",
    ):
        found = sorted(map(tuple, engine.sql(query.format(v=view)).collect()))
        assert found == whole, query
    assert engine.sql(f"SELECT count(*) FROM {view}.snapshots").first()[0] >= 1
    first = engine.sql(f"SELECT min(snapshot_id) FROM {view}.snapshots").first()[0]
    at = f"SELECT id, v FROM {view} VERSION AS OF {first}"
    assert sorted(map(tuple, engine.sql(at).collect())) == whole


@pytest.mark.parametrize(
    "text",
    [
        *("DROP TABLE {t}", "TRUNCATE TABLE {t}", "DELETE FROM {t}", "INSERT INTO {t} TABLE {t}"),
        # Spark reads this one, the parser does not.
        "DELETE FROM {t} WHERE id IN (SELECT id >>> 0 FROM (TABLE {t}))",
    ],
)
def test_what_is_no_query_is_never_run(spark, engine, schema, given, text):
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(f"lake.{schema}.v", text.format(**given))
    assert caught.value.code in {"SQL_UNSUPPORTED", "SQL_INVALID"}
    assert spark.table(given["t"]).count() == 2


def test_who_wants_changes_only_is_told_what_is_not_followed(engine, schema, given):
    for text in ("SELECT * FROM {t} VERSION AS OF {first}", "SELECT id >>> 1 FROM {t}"):
        with pytest.raises(StreamSqlError, match="INCREMENTAL_IMPOSSIBLE"):
            engine.create_materialized_view(
                f"lake.{schema}.v", text.format(**given), refresh_mode="incremental_strict"
            )
