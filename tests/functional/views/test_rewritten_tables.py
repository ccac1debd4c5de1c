"""Writers that rewrite whole files for a few rows (`copy-on-write`): the epoch costs these rows."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

QUERIES = {
    "joined": "SELECT p.name, l.price FROM {s}.parts p JOIN {s}.sold l ON l.part = p.id",
    "grouped": "SELECT p.name, sum(l.price) AS price, count(*) AS n FROM {s}.parts p "
    "JOIN {s}.sold l ON l.part = p.id GROUP BY p.name",
    "outer": "SELECT p.name, l.price FROM {s}.parts p LEFT JOIN {s}.sold l ON l.part = p.id "
    "AND l.price > 2",
    "exists": "SELECT p.id, p.name FROM {s}.parts p WHERE EXISTS "
    "(SELECT 1 FROM {s}.sold l WHERE l.part = p.id AND l.price > 7)",
}


@pytest.fixture
def world(engine, schema, tune):
    """Parts and what was sold of them: more rows than a small change has, in one file each."""
    tune(engine, big_rows=1000, broadcast_rows=1000, compared_rows=-1)
    s, sql = f"lake.{schema}", engine.spark.sql
    for table, text in (
        ("parts", "SELECT /*+ COALESCE(1) */ id, concat('p', id % 50) AS name FROM range(2000)"),
        (
            "sold",
            (
                "SELECT /*+ COALESCE(1) */ nullif(id * 7 % 2100, 14) AS part, id % 10 AS price "
                "FROM range(3000)"
            ),
        ),
    ):
        sql(f"CREATE TABLE {s}.{table} TBLPROPERTIES ('format-version' = '2') AS {text}")
    return s


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_over_tables_that_are_rewritten_equals_its_query(engine, world, name):
    view, sql = f"{world}.v", engine.spark.sql
    query = QUERIES[name].format(s=world)
    engine.create_materialized_view(view, query, state="none", refresh_mode="incremental_strict")
    for statements in (
        ["UPDATE {s}.parts SET name = 'new' WHERE id % 900 = 7"],
        ["UPDATE {s}.parts SET name = concat(name, '!')"],
        ["DELETE FROM {s}.sold WHERE part IN (7, 21)", "INSERT INTO {s}.parts VALUES (7, NULL)"],
        ["UPDATE {s}.parts SET id = id + 1 WHERE id = 70", "DELETE FROM {s}.sold WHERE price = 9"],
        ["UPDATE {s}.sold SET price = 5 WHERE price = 5"],
        [("MERGE INTO {s}.parts p USING (SELECT 4 AS id) u ON p.id = u.id "
         "WHEN MATCHED THEN UPDATE SET name = NULL")],
    ):  # fmt: skip
        for statement in statements:
            sql(statement.format(s=world))
        assert engine.advance().tables[view].mode != "full"
        assert engine.verify(view) == []


def test_a_table_is_not_read_whole_for_a_few_rows_of_rewritten_files(engine, world):
    view, sql = f"{world}.v", engine.spark.sql
    query = QUERIES["grouped"].format(s=world)
    engine.create_materialized_view(view, query, state="none", refresh_mode="incremental_strict")

    def reads(statement, of=view):
        sql(statement)
        return engine.advance().tables[of].reads.get(f"{world}.sold", 0)

    assert reads(f"UPDATE {world}.parts SET name = 'new' WHERE id = 7") == 1
    everything = reads(f"UPDATE {world}.parts SET name = concat(name, '!')")
    assert everything > 1, "all rows of the other table are read by Spark"
    assert engine.verify(view) == []
    # A second view: what both read of the change is computed by the epoch, for both.
    other, query = f"{world}.w", QUERIES["joined"].format(s=world)
    engine.create_materialized_view(other, query, state="none", refresh_mode="incremental_strict")
    for number, of in enumerate((view, other)):
        assert reads(f"UPDATE {world}.parts SET name = 'n' WHERE id = {9 + number}", of) == 1
    assert engine.verify(view) == engine.verify(other) == []
