"""Files that hold nothing but expired rows are not read by a view with a state TTL; what it makes
of the others is what it would make of all."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.scans import changes, sequence_scan
from dbt_streamsql.storage.iceberg.scans.planned_files import task_sets
from dbt_streamsql.storage.java import is_connect, java_table
from tests.support.clock import ahead
from tests.support.table_access import by_sql

pytestmark = pytest.mark.spark

TTL = 300.0
"""Seconds; no test takes as many."""
MODES = ", ".join(f"'write.{w}.mode' = '{{0}}'" for w in ("delete", "update", "merge"))
JOIN = "SELECT p.pay_id, p.note, o.product FROM {s}.pays p JOIN {s}.orders o ON p.order_id = o.id"
SELF = (
    "SELECT a.pay_id, b.pay_id AS other, a.note FROM {s}.pays a JOIN {s}.pays b "
    "ON a.order_id = b.order_id AND a.pay_id < b.pay_id"
)
SEMI = "SELECT pay_id, note FROM {s}.pays WHERE order_id IN (SELECT id FROM {s}.orders)"
COMPACT = (
    "CALL lake.system.rewrite_data_files(table => '{s}.pays', "
    "where => 'pay_id < 600', options => map('rewrite-all', 'true'))"
)
CHANGES = {
    "appends": ("SELECT 1",),
    "deletes": ("DELETE FROM {s}.pays WHERE pay_id % 50 IN (3, 4)",),
    "updates": ("UPDATE {s}.pays SET note = 'new' WHERE pay_id % 200 = 7",),
    "compaction": ("DELETE FROM {s}.pays WHERE pay_id % 50 = 3", COMPACT, ""),
    "overwrite": ("INSERT OVERWRITE {s}.pays SELECT id, id % 97, 'all new' FROM range(50)",),
}


class Shop:
    """Payments in a file for each commit, most of which expire, and the orders that they are of."""

    def __init__(self, engine, schema, clock, mode="merge-on-read"):
        self.clock = clock
        self.engine, self.spark, self.schema = engine, engine.spark, f"lake.{schema}"
        properties = f"TBLPROPERTIES ('format-version' = '3', {MODES.format(mode)})"
        self.sql(f"CREATE TABLE {{s}}.orders (id BIGINT, product STRING) {properties}")
        columns = "pay_id BIGINT, order_id BIGINT, note STRING"
        self.sql(f"CREATE TABLE {{s}}.pays ({columns}) {properties}")
        self.paid = 0

    def sql(self, text):
        return [tuple(row) for row in self.spark.sql(text.format(s=self.schema)).collect()]

    def pay(self, commits=1, rows=100):
        """Each row has a note of 400 characters that no codec makes smaller."""
        notes = "concat_ws('', transform(sequence(1, 10), i -> sha1(concat(id, i))))"
        for _ in range(commits):
            self.sql(
                f"INSERT INTO {{s}}.pays SELECT id, id % 97, {notes} "
                f"FROM range({self.paid}, {self.paid + rows}, 1, 1)"
            )
            self.paid += rows

    def view(self, name, query, ttl):
        self.engine.create_materialized_view(
            f"{self.schema}.{name}", query.format(s=self.schema), state_ttl=ttl
        )

    def advance(self):
        tables = self.engine.advance().tables
        return {name.rpartition(".")[2]: report for name, report in tables.items()}

    def expire(self):
        self.clock.jump(TTL + 1)

    def rows(self, name):
        return sorted(self.sql(f"SELECT * FROM {{s}}.{name}"))


@pytest.fixture
def clock(engine):
    with ahead(engine) as made:
        yield made


@pytest.fixture
def shop(engine, schema, clock):
    return Shop(engine, schema, clock)


@pytest.fixture
def unpruned(engine, monkeypatch):
    """The view `unpruned` reads by the condition alone."""
    made = engine.warehouse.programs

    def make(reads, writer, *rest):
        program = made(reads, writer, *rest)
        if writer.table.table == "unpruned":
            program.relations.recent._frame = lambda *_: None
        return program

    monkeypatch.setattr(engine.warehouse, "programs", make)


@pytest.fixture(params=["java", "sql"])
def way(request, monkeypatch, spark):
    """With the JVM, and as over Spark Connect; where there is no JVM both are the same."""
    if request.param == "sql":
        by_sql(monkeypatch, "newer_rows")
    return request.param if not is_connect(spark) else "sql"


def both(shop, query, ttl, *statements):
    """The same view twice, one of them unpruned: its epochs after most of the input has expired.

    A statement '' waits until all that is there has expired.
    """
    for name in ("pruned", "unpruned"):
        shop.view(name, query, ttl)
    shop.pay(10)
    shop.sql("INSERT INTO {s}.orders SELECT id, 'early' FROM range(5)")
    shop.advance()
    shop.expire()
    found = []
    for number, statement in enumerate(["SELECT 1", *statements, "SELECT 1"]):
        if statement:
            shop.sql(statement)
        else:
            shop.expire()
        shop.pay()
        shop.sql(f"INSERT INTO {{s}}.orders SELECT id, 'l{number}' FROM range({number * 7}, 97)")
        done = shop.advance()
        assert {done[name].mode for name in ("pruned", "unpruned")} <= {"append", "incremental"}
        assert shop.rows("pruned") == shop.rows("unpruned")
        found.append((done["pruned"], done["unpruned"]))
    return found


@pytest.mark.parametrize(
    ("way", "mode", "change"),
    [
        *(("java", "merge-on-read", change) for change in ("updates", "compaction", "overwrite")),
        ("java", "copy-on-write", "updates"),
        ("sql", "merge-on-read", "appends"),
        ("sql", "merge-on-read", "compaction"),
    ],
    indirect=["way"],
)
def test_expired_files_are_not_read_and_the_rows_are_the_same(
    engine, schema, clock, unpruned, way, change, mode
):
    shop = Shop(engine, schema, clock, mode)
    ttl = {"joins": {"p": f"{TTL} s", "o": "1 day"}}
    done = both(shop, JOIN, ttl, *CHANGES[change])
    if done[0][0].bytes_read < 0:
        return  # over Spark Connect nobody counts them
    # At first all commits are appends, which every way can tell; in the end a compaction is old.
    less_read = [less.bytes_read < 0.7 * more.bytes_read for less, more in done]
    assert less_read[0]
    if change == "appends" or (
        way == "java" and mode == "merge-on-read" and change != "overwrite"
    ):
        assert less_read == [change != "compaction" or at != 2 for at in range(len(done))]


@pytest.mark.parametrize(
    ("way", "query", "ttl"),
    [
        ("java", SELF, f"{TTL} s"),
        ("sql", SELF, f"{TTL} s"),
        ("java", SEMI, {"joins": {"pays": f"{TTL} s"}}),
    ],
    indirect=["way"],
)
def test_a_table_may_be_read_several_times_in_one_view(shop, unpruned, way, query, ttl):
    both(shop, query, ttl, *CHANGES["appends"], *CHANGES["deletes"])


@pytest.mark.parametrize("way", ["sql"], indirect=True)
def test_an_input_that_is_remembered_twice_in_two_ways(shop, unpruned, way):
    both(shop, SELF, {"joins": {"a": f"{TTL} s", "b": 0}}, *CHANGES["appends"])


def compared(shop):
    """Many snapshots after many numbers are what the condition gives; how many are not read so."""
    name = TableName.parse(f"{shop.schema}.pays")
    meta = metadata.load(shop.spark, name)
    local, views = Scratch(shop.spark, 1 << 20), []
    reads = sequence_scan.Recent(
        *(shop.spark, lambda frame: views.append(1) or local.view(frame)),
        few_files=0,
        few_bytes=0,
        worth=1,
    )
    last = meta.snapshots[meta.current]
    try:
        for snapshot in {*list(meta.snapshots)[2::6], last.id}:
            for number in range(0, last.sequence + 1, 3):
                rows = reads.rows(name, meta, snapshot, number)
                wanted = changes.written_after(changes.with_lineage(name, snapshot), number)
                counted = changes.difference(rows, wanted, "*")
                names = shop.spark.sql(f"SELECT * FROM {wanted}").columns
                columns = [Column(column, "") for column in names]
                found = changes.consolidated(counted, columns)
                assert shop.sql(f"SELECT * FROM {found}") == [], (snapshot, number)
    finally:
        reads.close()
        local.close()
    return len(views)


def test_every_snapshot_after_every_number_is_what_the_condition_gives(shop, way):
    shop.pay(9, rows=20)
    for statements in CHANGES.values():
        shop.pay(2, rows=20)
        for statement in filter(None, statements):
            shop.sql(statement)
    assert compared(shop) > (10 if way == "java" else 1)
    shop.sql("ALTER TABLE {s}.pays ADD COLUMN more INT")
    shop.sql("INSERT INTO {s}.pays SELECT id, id, 'x', 1 FROM range(10)")
    shop.sql("DELETE FROM {s}.pays WHERE pay_id = 7")
    assert compared(shop) > 0 or way == "sql"


def test_nothing_is_left_of_an_epoch_that_failed_or_did_not(shop, way, monkeypatch):
    def left():
        sessions = shop.engine.warehouse.sessions._free
        shown = [s.sql(f"SHOW VIEWS IN {shop.schema}").collect() for s in sessions]
        views = [row.viewName for rows in shown for row in rows if row.isTemporary]
        if way == "sql":
            return views
        table = java_table(shop.spark, TableName.parse(f"{shop.schema}.pays"))
        return [*views, *task_sets(shop.spark).fetchSetIds(table)]

    both(shop, JOIN, {"joins": {"p": f"{TTL} s", "o": "1 day"}})
    assert left() == []
    staged = []
    frame = sequence_scan.Recent._frame

    def fail(self, *args):
        staged.append(frame(self, *args))
        raise RuntimeError("stopped here")

    monkeypatch.setattr(sequence_scan.Recent, "_frame", fail)
    shop.pay()
    shop.sql("INSERT INTO {s}.orders SELECT id, 'last' FROM range(97)")
    with pytest.raises(RuntimeError, match="stopped here"):
        shop.advance()
    assert any(found is not None for found in staged)
    assert left() == []


def test_a_small_table_is_read_by_the_condition(shop, way):
    shop.pay(5)
    name = TableName.parse(f"{shop.schema}.pays")
    meta = metadata.load(shop.spark, name)
    reads = sequence_scan.Recent(shop.spark, lambda _: pytest.fail("it was planned"))
    assert "VERSION AS OF" in reads.rows(name, meta, meta.current, 4)
