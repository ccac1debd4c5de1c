"""What changed is exact, whatever the writers of a table say of their commits."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.inputs import inputs
from dbt_streamsql.storage.java import is_connect
from tests.support import summaries

pytestmark = pytest.mark.spark

_STATEMENTS = (
    "INSERT INTO {t} SELECT id, concat('y', id % 3) FROM range({n}, {n} + 30)",
    "DELETE FROM {t} WHERE k * 7919 % 101 = {n} % 101",
    "UPDATE {t} SET v = concat(v, 'u') WHERE k * 7919 % 101 = {n} % 101",
    "DELETE FROM {t} WHERE k >= {n} % 400 AND k < {n} % 400 + 100",
    "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
)
_TELLINGS = ("bare", "from_zero", "always_from_zero", "untold", "uncounted", None)


@pytest.fixture
def make(spark, schema):
    """`make(format version, mode of deletes)`: a table of two files."""
    if is_connect(spark):
        pytest.skip("summaries are written by Iceberg's Java")

    def made(version, mode):
        name = TableName("lake", schema, f"written_{version}")
        modes = ", ".join(f"'write.{w}.mode' = '{mode}'" for w in ("delete", "update", "merge"))
        properties = f"'format-version' = '{version}', {modes}"
        spark.sql(f"CREATE TABLE {name} (k BIGINT, v STRING) TBLPROPERTIES ({properties})")
        for low in (0, 200):
            spark.sql(
                f"INSERT INTO {name} SELECT id, concat('x', id % 7) FROM range({low}, {low + 200})"
            )
        return name

    return made


def _rows(spark, relation):
    found = spark.sql(
        f"SELECT k, v, sum(_streamsql_w) FROM {relation} GROUP BY ALL HAVING sum(_streamsql_w) <> 0"
    )
    return sorted(map(tuple, found.collect()))


def _changed(spark, name, old, new):
    """What changed as the product reads it, after the difference of the two versions."""
    meta = metadata.load(spark, name)
    change = inputs.classify(meta, old, new)
    versions = (changes.version(name, at) for at in (new, old))
    expected = _rows(spark, f"({changes.difference(*versions, 'k, v')})")
    for found in (change, changes.among_others(meta, change)):
        read = inputs.read(name, meta, found, ("k", "v"))
        assert (_rows(spark, read) if read else []) == expected, found
    return change


@pytest.mark.hunts
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_writers_in_turns_whose_commits_count_or_do_not(spark, make, version, seed):
    rng = random.Random(f"{version}/{seed}")
    name = make(version, "merge-on-read" if version > 1 else "copy-on-write")
    versions = [metadata.load(spark, name).current]
    for _ in range(10):
        spark.sql(rng.choice(_STATEMENTS).format(t=name, n=rng.randrange(1000)))
        if tell := rng.choice(_TELLINGS):
            summaries.retold(spark, name, getattr(summaries, tell))
        versions.append(metadata.load(spark, name).current)
        old = rng.choice(versions[-4:-1])
        _changed(spark, name, old, versions[-1])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("telling", ["bare", "uncounted", "from_zero"])
def test_rows_that_were_deleted_before_without_a_word_do_not_go_again(
    spark, make, version, telling
):
    name = make(version, "merge-on-read")
    spark.sql(f"DELETE FROM {name} WHERE k IN (1, 2, 3)")
    summaries.retold(spark, name, summaries.bare)
    spark.sql(f"DELETE FROM {name} WHERE k = 4")
    summaries.retold(spark, name, getattr(summaries, telling))
    old = metadata.load(spark, name).current
    spark.sql(f"INSERT INTO {name} VALUES (900, 'new')")
    summaries.retold(spark, name, getattr(summaries, telling))
    spark.sql(f"DELETE FROM {name} WHERE k = 5")
    summaries.retold(spark, name, getattr(summaries, telling))
    _changed(spark, name, old, metadata.load(spark, name).current)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_a_table_whose_first_commits_are_gone_is_read_from_changes(spark, make, mode):
    name = make(3, mode)
    spark.sql(f"DELETE FROM {name} WHERE k = 1")
    old = metadata.load(spark, name).current
    spark.sql(f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2100-01-01 00:00:00', 1)")
    spark.sql(f"DELETE FROM {name} WHERE k = 2")
    meta = metadata.load(spark, name)
    assert len(meta.snapshots) == 2
    cheap = {"merge-on-read": "positions", "copy-on-write": "changelog"}
    assert _changed(spark, name, old, meta.current).kind == cheap[mode]


def test_totals_that_were_wrong_before_the_first_commits_were_gone_are_not_believed(spark, make):
    name = make(3, "merge-on-read")
    spark.sql(f"DELETE FROM {name} WHERE k = 1")
    summaries.retold(spark, name, summaries.always_from_zero)
    spark.sql(f"INSERT INTO {name} VALUES (900, 'new')")
    summaries.retold(spark, name, summaries.always_from_zero)
    old = metadata.load(spark, name).current
    spark.sql(f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2100-01-01 00:00:00', 1)")
    spark.sql(f"DELETE FROM {name} WHERE k = 2")
    meta = metadata.load(spark, name)
    assert len(meta.snapshots) == 2
    assert _changed(spark, name, old, meta.current).kind == "difference"


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_were_deleted_by_their_values_before_do_not_go_again(spark, make, version):
    name = make(version, "merge-on-read")
    summaries.delete_by_value(spark, name, "k", [1, 2])
    old = metadata.load(spark, name).current
    spark.sql(f"INSERT INTO {name} VALUES (900, 'new')")
    spark.sql(f"DELETE FROM {name} WHERE k = 3")
    _changed(spark, name, old, metadata.load(spark, name).current)


@pytest.mark.parametrize("version", [2, 3])
def test_a_view_of_a_table_that_says_nothing_of_its_commits_equals_its_query(
    engine, spark, schema, make, version
):
    name = make(version, "merge-on-read")
    view = f"lake.{schema}.totals"
    query = f"SELECT v, count(*) AS n, sum(k) AS s FROM {name} GROUP BY v"
    engine.create_materialized_view(view, query)
    for n, statement in enumerate(_STATEMENTS[:4] * 2):
        spark.sql(statement.format(t=name, n=37 * n))
        summaries.retold(spark, name, (summaries.bare, summaries.from_zero)[n % 2])
        report = engine.advance()
        assert report.tables[view].mode in ("append", "incremental"), report.tables[view].reason
        assert engine.verify(view) == []
