"""Tables in an S3 server: what an epoch asks of it, and all that happens besides epochs."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import patience
from tests.support.spark_child import paths

pytestmark = pytest.mark.processes

MOST = 20
STORE = """
import json
import os
import sys
from tests.support import object_store
from tests.support.object_store import BUCKET, CREDENTIALS
os.environ.update(CREDENTIALS)
from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings, catalog_settings
from dbt_streamsql.storage.iceberg.caching_io import RESOLVING
from dbt_streamsql.warm import discover, lifecycle

folder = sys.argv[1]
with object_store.server() as store:
    settings = SessionSettings(
        # Of its own: one of a killed test may have left its warm engine.
        warehouse=f"s3://{BUCKET}/warehouse-{os.getpid()}",
        catalog_properties={
            "type": "jdbc", "jdbc.schema-version": "V1",
            "uri": f"jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=20000",
            **store.catalog_properties(),
        },
        connectors=("s3",),
    )
    """
EMBEDDED = """
spark = open_session(settings)
engine = Engine.open(spark=spark, meta=f"sqlite:///{folder}/meta.db")
other = spark.newSession()  # a writer that shares no memory with the engine
for key, value in catalog_settings(settings).items():
    other.conf.set(key, value)
other.conf.set("spark.sql.catalog.lake.io-impl", RESOLVING)
"""


def told(folder, story, start=EMBEDDED):
    """The output of a story in a process of its own: its Java has the clients of S3."""
    text = STORE + (start + story).replace("\n", "\n    ")
    command = [sys.executable, "-c", text, str(folder)]
    done = patience.run(command, cwd=folder, env=paths())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COUNTED = """
spark.sql("CREATE NAMESPACE lake.s")
spark.sql("CREATE TABLE lake.s.t (id BIGINT, k INT) TBLPROPERTIES ('format-version' = '3')")
spark.sql("INSERT INTO lake.s.t SELECT id, id % 100 FROM range(1000)")
engine.create_materialized_view("lake.s.v", "SELECT k, count(*) AS n FROM lake.s.t GROUP BY k")
found = []
for number in range(14):
    other.sql(f"INSERT INTO lake.s.t VALUES ({2000 + number}, {number})")
    store.cleared()
    assert engine.advance().tables["lake.s.v"].mode == "incremental"
    found.append(dict(store.counts()))
assert engine.verify("lake.s.v") == []
store.cleared()
engine.advance()
print(json.dumps([found, dict(store.counts())]))
"""


def test_an_epoch_asks_for_what_is_new_however_old_its_tables_are(tmp_path):
    epochs, nothing_new = json.loads(told(tmp_path, COUNTED).splitlines()[-1])
    # The metadata, the manifest list, the manifest and the rows that the other writer has added.
    assert [epoch["GET"] for epoch in epochs] == [4] * 14
    assert all("HEAD" not in epoch for epoch in epochs)
    assert max(sum(epoch.values()) for epoch in epochs) <= MOST
    # Old versions of metadata are deleted from some epoch on.
    assert len({tuple(sorted(epoch.items())) for epoch in epochs[7:]}) == 1
    assert nothing_new == {}


WHOLE = """
spark.sql("CREATE NAMESPACE lake.s")
spark.sql("CREATE TABLE lake.s.t (id BIGINT, k INT) TBLPROPERTIES ('format-version' = '3')")
spark.sql("INSERT INTO lake.s.t SELECT id, id % 10 FROM range(200)")
views = ("lake.s.v", "lake.s.w", "lake.s.u")
engine.create_materialized_view(
    views[0], "SELECT k, count(*) AS n FROM lake.s.t GROUP BY k", changelog=True)
engine.create_materialized_view(views[1], "SELECT n, count(*) AS m FROM lake.s.v GROUP BY n")
engine.create_materialized_view(
    views[2], "SELECT id, n FROM lake.s.v JOIN lake.s.t USING (k)", state="all")
other.sql("INSERT INTO lake.s.t VALUES (900, 1), (901, NULL)")
engine.advance()
other.sql("DELETE FROM lake.s.t WHERE id IN (5, 6)")
# The views that read `v` see this change later, without a file of it beside the table.
engine.advance([views[0]])
report = engine.advance()
assert {report.tables[view].mode for view in views[1:]} == {"incremental"}, report
assert all(engine.verify(view) == [] for view in views)
assert engine.changelog(views[0], 1).count() > 0
engine.revise("lake.s.t", sql="UPDATE lake.s.t SET k = 3 WHERE id = 1")
assert all(engine.verify(view) == [] for view in views)
garbage = engine.gc()
assert {found.orphans for found in garbage.tables} == {0}  # None where it cannot be listed
engine.drop(views[2])
engine.create_materialized_view(views[1], "SELECT n + 1 AS n FROM lake.s.v")
assert all(engine.verify(view) == [] for view in views[:2])
print("all right")
"""


def test_views_over_views_changelogs_revisions_and_garbage_need_no_other_files(tmp_path):
    assert "all right" in told(tmp_path, WHOLE)


ATOMIC = """
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.storage.staged_table import TableSpec

def files():
    return {found["Key"] for found in store.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]}

spark.sql("CREATE NAMESPACE lake.s")
spec = TableSpec(TableName.parse("lake.s.t"))
engine.create_table_as(Build(spec, "SELECT 1 AS id"))
engine.create_table_as(Build(spec, "SELECT 2 AS id"))
before = files()
fails = "SELECT CASE WHEN id = 3 THEN raise_error('bad row') ELSE id END AS id FROM range(0, 4, 1, 4)"
for name in ("t", "new"):
    try:
        engine.create_table_as(Build(TableSpec(TableName.parse(f"lake.s.{name}")), fails))
    except Exception as error:
        assert "bad row" in str(error), error
    else:
        raise AssertionError("it did not fail")
assert spark.sql("SELECT id FROM lake.s.t").collect() == [(2,)]
assert files() == before, files() - before
assert engine.sweep() == 0
print("all right")
"""


def test_a_table_whose_query_fails_stays_as_it_was_and_leaves_no_files(tmp_path):
    assert "all right" in told(tmp_path, ATOMIC)


ARRIVING = """
def put(number, text):
    store.client("s3").put_object(
        Bucket=BUCKET, Key=f"landing/orders/{number}.json", Body=text.encode())

spark.sql("CREATE NAMESPACE lake.s")
put(1, '{"id": 1, "n": 5}')
source = {
    "connector": "files", "format": "json", "schema": "id INT, n INT",
    "options": {"path": f"s3a://{BUCKET}/landing/orders"},
}
engine.create_streaming_table("lake.s.orders", "SELECT id, n FROM lake.raw.landed", stream="lake.raw.landed",
                              source=source, key=["id"], sequence_by="n")
engine.create_materialized_view("lake.s.total", "SELECT sum(n) AS n FROM lake.s.orders")
put(2, '{"id": 1, "n": 6}' + chr(10) + '{"id": 2, "n": 1}')
engine.advance()
engine.advance()
assert sorted(map(tuple, spark.table("lake.s.orders").select("id", "n").collect())) == [(1, 6), (2, 1)]
assert engine.verify("lake.s.total") == []
print("all right")
"""


def test_a_stream_reads_files_that_arrive_in_the_same_store(tmp_path):
    assert "all right" in told(tmp_path, ARRIVING)


DELIVERED = """
spark.sql("CREATE NAMESPACE lake.s")
spark.sql("CREATE TABLE lake.s.t (id BIGINT) TBLPROPERTIES ('format-version' = '3')")
spark.sql("INSERT INTO lake.s.t VALUES (1), (2)")
engine.create_materialized_view("lake.s.v", "SELECT id FROM lake.s.t WHERE id < 9")
out = f"s3a://{BUCKET}/out"
target = {"connector": "files", "format": "json", "options": {"path": out}}
engine.create_sink("lake.s.out", "SELECT id FROM lake.s.v", target=target)
other.sql("INSERT INTO lake.s.t VALUES (3), (10)")
other.sql("DELETE FROM lake.s.t WHERE id = 1")
report = engine.advance()
assert report.sinks["lake.s.out"].error is None, report
assert engine.advance().sinks.get("lake.s.out") is None
rows = spark.read.json(f"{out}/barrier=*").collect()
print(sorted((row["id"], row["_op"]) for row in rows))
"""


def test_a_sink_delivers_each_change_once_into_the_same_store(tmp_path):
    found = told(tmp_path, DELIVERED).splitlines()[-1]
    assert found == "[(1, '+'), (1, '-'), (2, '+'), (3, '+')]"


WARM = """
lifecycle.start(settings, 600)
try:
    spark = discover.open_warm(settings)
    engine = Engine.open(spark=spark, meta=f"sqlite:///{folder}/meta.db")
    spark.sql("CREATE NAMESPACE lake.s")
    spark.sql("CREATE TABLE lake.s.t (id BIGINT, k INT) TBLPROPERTIES ('format-version' = '3')")
    spark.sql("INSERT INTO lake.s.t SELECT id, id % 100 FROM range(1000)")
    engine.create_materialized_view("lake.s.v", "SELECT k, count(*) AS n FROM lake.s.t GROUP BY k")
    found = []
    for number in range(5):
        spark.sql(f"INSERT INTO lake.s.t VALUES ({2000 + number}, {number})")
        store.cleared()
        assert engine.advance().tables["lake.s.v"].mode == "incremental"
        found.append(len(store.requests))
    assert engine.verify("lake.s.v") == []
    print(json.dumps(found))
finally:
    lifecycle.stop(settings, force=True)
"""


def test_an_epoch_through_the_warm_engine_asks_no_more(tmp_path):
    epochs = json.loads(told(tmp_path, WARM, start="").splitlines()[-1])
    assert max(epochs) <= MOST, epochs
