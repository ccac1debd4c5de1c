"""What stays readable of the past, what goes, and what gc takes away besides."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbt_streamsql import Engine
from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Retention
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.commits import tags
from tests.support.steps import observing
from tests.support.table_access import by_sql

pytestmark = pytest.mark.spark

DAY = 86_400.0
WEEK = Retention(7 * DAY)


@dataclass
class Shop:
    """A view with its changelog, and one that reads it; `now` is what MetaService's clock says."""

    engine: Engine
    base: str
    folder: str
    now: float = 1_795_363_200.0
    bought: int = 0

    @property
    def spark(self):
        return self.engine.spark

    @property
    def store(self):
        return self.engine.store

    @property
    def sums(self):
        return f"{self.base}.sums"

    def keep(self, kept: Retention) -> None:
        self.engine.warehouse.retention = kept

    def buy(self, *only: str, days: float = 1) -> int:
        """Days later something is bought; the views, or only some, are brought up to date."""
        self.now += days * DAY
        self.bought += 1
        self.spark.sql(f"INSERT INTO {self.base}.orders VALUES ({self.bought % 2}, 10)")
        if not only:
            return self.engine.advance().barrier
        self.engine.begin()
        for view in only:
            self.engine.epochs.opened.ensure(f"{self.base}.{view}")
        return self.engine.publish().barrier

    def total(self, barrier: int | None = None) -> int:
        query = f"SELECT sum(total) FROM {self.sums}"
        return self.engine.sql(query, "read_committed", barrier).first()[0]

    def snapshots(self, view: str = "sums") -> set[int]:
        return set(metadata.load(self.spark, TableName.parse(f"{self.base}.{view}")).snapshots)

    def everything(self):
        """All that a dry run must leave."""
        ledger = [self.store.recent(1000), self.store.kept_from(), self.store.fence()]
        rows = [self.store.history(table) for table in self.store.latest_all()]
        views = [self.snapshots(name) for name in ("sums", "sums__changelog", "counts")]
        files = sorted(str(file) for file in Path(self.folder).rglob("*") if file.is_file())
        return ledger, rows, views, files


@pytest.fixture
def shop(spark, tmp_path, warehouse):
    meta = f"sqlite:///{tmp_path}/meta.db"
    opened = Engine.open(spark=spark, meta=meta, retain=1000 * DAY)
    base = f"lake.s_{os.urandom(4).hex()}"
    spark.sql(f"CREATE NAMESPACE {base}")
    spark.sql(f"CREATE TABLE {base}.orders (item INT, price INT)")
    made = Shop(opened, base, str(warehouse / base.removeprefix("lake.")))
    opened.store._clock = lambda: made.now
    opened.store.leases._clock = lambda: made.now
    spark.sql(f"INSERT INTO {base}.orders VALUES (0, 0)")
    opened.begin()
    opened.create_materialized_view(
        made.sums,
        f"SELECT item, sum(price) AS total FROM {base}.orders GROUP BY item",
        changelog=True,
    )
    opened.create_materialized_view(
        f"{base}.counts", f"SELECT total, count(*) AS n FROM {made.sums} GROUP BY total"
    )
    opened.publish()
    yield made
    opened.abort()
    for name in ("counts", "sums"):
        opened.drop(f"{base}.{name}")
    spark.sql(f"DROP TABLE {base}.orders PURGE")
    spark.sql(f"DROP NAMESPACE {base}")
    opened.close()


def refused(call) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as error:
        call()
    return error.value


def test_a_week_can_be_read_and_what_is_older_is_refused(shop):
    shop.keep(WEEK)
    barriers = [shop.buy(days=2) for _ in range(6)]
    assert shop.engine.gc(orphans_older_than=None).kept_from == barriers[2]
    for times, barrier in enumerate(barriers[2:], start=3):
        assert shop.total(barrier) == 10 * times
    changes = shop.engine.changelog(shop.sums, barriers[2], barriers[5]).collect()
    gained = sum(row.total if row["_op"] == "+" else -row.total for row in changes)
    assert gained == 10 * 3
    told = refused(lambda: shop.total(barriers[1]))
    assert (told.code, told.given) == ("META_CONFLICT", "forgotten")
    for first, why in (
        (barriers[1], f"barrier {barriers[1]} is no longer kept"),
        (0, "its first versions are no longer kept"),
    ):
        told = refused(lambda first=first: shop.engine.changelog(shop.sums, first, barriers[5]))
        assert told.code == "CHANGELOG_UNAVAILABLE"
        assert why in told.message
        assert f"from {barriers[2]} to {barriers[5]}" in told.allowed
    for view in ("sums", "counts", "sums__changelog"):
        assert len(shop.snapshots(view)) <= 5, "those of the week, and one compaction"
    assert shop.engine.verify(shop.sums) == []


def test_runs_let_old_barriers_go_by_themselves_but_not_every_time(shop, tune, observe):
    shop.keep(Retention(7 * DAY, 2))
    steps = []
    observe(lambda step, _: steps.append(step))
    tune(shop.engine, barriers_together=3)
    kept = []
    for _ in range(7):
        shop.buy()
        kept.append(shop.store.kept_from())
    assert len(set(kept)) == 3, kept
    assert steps.count("ledger.keep") == 2 * 2
    assert len(shop.snapshots()) <= 2 + 3 + 1
    assert shop.total(kept[-1])
    assert shop.engine.verify(f"{shop.base}.counts") == []


def test_a_view_that_did_not_change_for_long_is_there_at_every_barrier_that_is_kept(shop):
    shop.keep(Retention(7 * DAY, 2))
    shop.spark.sql(f"CREATE TABLE {shop.base}.other AS SELECT 1 AS a")
    shop.engine.create_materialized_view(
        f"{shop.base}.rare", f"SELECT sum(a) AS a FROM {shop.base}.other"
    )
    barriers = [shop.buy("sums") for _ in range(4)]
    shop.engine.gc(orphans_older_than=None)
    both = f"SELECT (SELECT a FROM {shop.base}.rare), (SELECT sum(total) FROM {shop.sums})"
    assert tuple(shop.engine.sql(both, barrier=barriers[2]).first()) == (1, 30)
    shop.engine.drop(f"{shop.base}.rare")
    shop.spark.sql(f"DROP TABLE {shop.base}.other PURGE")


def test_what_a_reader_holds_outlives_gc_and_goes_after_it(shop):
    shop.keep(Retention(0.0))
    shop.buy()
    with shop.engine.reader() as reader:
        held = reader.sql(f"SELECT sum(total) FROM {shop.sums}").first()[0]
        for _ in range(3):
            shop.buy(days=0)
        assert shop.engine.gc(orphans_older_than=None).kept_from == reader.barrier
        shop.spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{shop.base.removeprefix('lake.')}.orders'"
            ", older_than => current_timestamp(), retain_last => 1)"
        )
        both = f"SELECT sum(total) FROM {shop.sums} UNION ALL SELECT sum(price) FROM {shop.base}.orders"
        assert [row[0] for row in reader.sql(both).collect()] == [held, held]
    shop.now += 1
    assert shop.engine.gc(orphans_older_than=None).kept_from == shop.store.last_committed()
    assert len(shop.snapshots()) <= 2
    assert refused(lambda: shop.engine.reader(barrier=reader.barrier)).code == "META_CONFLICT"


def test_a_view_that_lags_still_gets_its_change(shop):
    shop.keep(Retention(barriers=1))
    for _ in range(4):
        shop.buy("sums")
    gone = {table.table: table.snapshots for table in shop.engine.gc().tables}
    assert gone[shop.sums] >= 2
    report = shop.engine.advance()
    assert report.tables[f"{shop.base}.counts"].mode == "incremental"
    assert shop.engine.verify(f"{shop.base}.counts") == []


def test_what_could_not_be_pinned_stays(shop, monkeypatch, caplog):
    shop.keep(Retention(barriers=1))
    for _ in range(2):
        shop.buy("sums")
    spark, name = shop.spark, TableName.parse(shop.sums)
    meta = metadata.load(spark, name)
    tags.reconcile(spark, name, meta, shop.store.id, set())
    monkeypatch.setattr(tags, "reconcile", lambda *_: 0)
    before = shop.snapshots()
    shop.engine.gc(orphans_older_than=None)
    assert shop.snapshots() == before


def test_gc_twice_is_gc_once_and_a_dry_run_changes_nothing(shop):
    for _ in range(4):
        shop.buy(days=3)
    shop.keep(WEEK)
    before = shop.everything()
    told = shop.engine.gc(dry_run=True)
    assert shop.everything() == before
    done = shop.engine.gc()
    assert [(t.table, t.snapshots, t.changes, t.orphans) for t in done.tables] == [
        (t.table, t.snapshots, t.changes, t.orphans) for t in told.tables
    ]
    assert (told.kept_from, told.ledger.versions) == (done.kept_from, done.ledger.versions)
    assert done.ledger.barriers == 2
    assert all(table.files > 0 and table.bytes > 0 for table in done.tables if table.snapshots > 1)
    once = shop.everything()
    again = shop.engine.gc()
    assert shop.everything()[1:] == once[1:]
    assert not any(t.snapshots or t.changes or t.orphans for t in again.tables)
    assert again.ledger == replace(again.ledger, barriers=0, versions=0, pins=0, entries=0)


def test_without_the_jvm_in_reach_snapshots_go_by_a_statement(shop, monkeypatch):
    shop.keep(Retention(barriers=1))
    by_sql(monkeypatch, "expire")
    shop.spark.sql(f"ALTER TABLE {shop.sums} CREATE TAG audited")
    for _ in range(2):
        shop.buy()
    before = shop.snapshots()
    gone = {t.table: t.snapshots for t in shop.engine.gc(orphans_older_than=None).tables}
    assert len(shop.snapshots()) == len(before) - gone[shop.sums] == 2
    assert shop.spark.sql(f"SELECT * FROM {shop.sums} VERSION AS OF 'audited'").count() == 1


def test_what_nothing_names_goes_when_it_is_old_enough(shop):
    location = metadata.load(shop.spark, TableName.parse(shop.sums)).location
    place = Path(location.removeprefix("file:"))
    old, young = place / "data" / "lost.parquet", place / "data" / "just-written.parquet"
    unlisted = Path(f"{place}-changes") / "b1-0123abcd"
    strange = Path(f"{place}-changes") / "notes"
    ahead = Path(f"{place}-changes") / "b99999-0123abcd"
    for folder in (unlisted, strange, ahead):
        folder.mkdir(parents=True)
        (folder / "change.parquet").write_bytes(b"x")
    for file in (old, young):
        file.write_bytes(b"x" * 1000)
    four_days_ago = time.time() - 4 * DAY
    os.utime(old, (four_days_ago, four_days_ago))
    assert {t.orphans for t in shop.engine.gc(orphans_older_than="5 days").tables} == {0}
    assert not unlisted.exists()
    found = {t.table: t for t in shop.engine.gc().tables}
    assert found[shop.sums].orphans == 1
    assert found[shop.sums].bytes >= 1000
    assert not old.exists()
    assert young.exists()
    assert strange.exists()
    assert ahead.exists(), "a barrier that this runner does not know is another's"
    assert refused(lambda: shop.engine.gc(orphans_older_than="1 hour")).code == "CONFIG_INVALID"
    shop.buy()
    assert shop.engine.verify(shop.sums) == []


def test_gc_that_dies_leaves_nothing_unreadable_and_the_next_one_ends_it(shop):
    shop.keep(Retention(7 * DAY, 2))
    for _ in range(2):
        shop.buy()
    for step in ("ledger.keep", "table.expire", "ledger.forget"):
        for moment in ("before", "after"):
            shop.buy()

            def die(here, when, at=(step, moment)):
                if (here, when) == at:
                    raise KeyboardInterrupt

            with observing(die), pytest.raises(KeyboardInterrupt):
                shop.engine.gc(orphans_older_than=None)
            kept = shop.store.kept_from()
            for barrier in (b.id for b in shop.store.recent(100) if b.id >= max(kept, 1)):
                assert shop.total(barrier) == 10 * (barrier - 1), (step, moment)
            shop.engine.gc(orphans_older_than=None)
            assert len(shop.store.history(shop.sums)) == 2
            assert len(shop.snapshots()) <= 3


def test_the_command_tells_per_table_what_went(project):
    project.write("seeds/orders.csv", "id,amount\n1,10\n")
    view = "{{ config(materialized='materialized_view') }} select sum(amount) as total "
    project.write("models/summed.sql", view + "from {{ ref('orders') }}")
    project.profile(
        {
            "schema": "shop",
            "warehouse": str(project.root / "warehouse"),
            "retain": "0 seconds",
            "retain_barriers": 2,
            "server": False,
        }
    )
    assert project.dbt("build").ok
    for number in range(3):
        project.sql(f"insert into lake.shop.orders values ({number}, 20)")
        assert project.dbt("run").ok
    folders = ["--project-dir", str(project.root), "--profiles-dir", str(project.root)]
    told = CliRunner().invoke(main, ["gc", "--dry-run", "--json", *folders])
    assert told.exit_code == 0, told.output
    would = json.loads(told.stdout)
    assert would["dry_run"]
    assert {t["table"]: t["snapshots"] for t in would["tables"]}["lake.shop.summed"] >= 3
    told = CliRunner().invoke(main, ["gc", *folders])
    assert "lake.shop.summed" in told.stdout
    assert f"barriers from {would['kept_from']} on stay readable" in told.stdout
    done = project.dbt("run-operation", "streamsql_gc", "--args", "{dry_run: true}")
    assert done.ok, done.text
    assert project.snapshots("summed") <= 2
