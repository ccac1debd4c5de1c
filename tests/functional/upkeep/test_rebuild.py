"""A store that was lost is rebuilt from the tables, and the views go on from their changes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from dbt_streamsql import Engine
from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.definition.stored_part import is_state_table
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.spark.session import embedded
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.provenance import BARRIER_PROPERTY, Provenance
from tests.support.steps import dying

pytestmark = pytest.mark.spark

VIEWS = {
    "lines": "SELECT o.id, u.city, o.amount FROM lake.shop.orders o "
    "JOIN lake.shop.users u ON u.id = o.user_id",
    "by_city": "SELECT city, count(*) AS n, sum(amount) AS total, avg(amount) AS mean "
    "FROM lake.shop.lines GROUP BY city",
    "cities": "SELECT * FROM lake.shop.by_city WHERE n > 1",
    "users_of": "SELECT user_id, max(amount) AS most FROM lake.shop.orders "
    "WHERE '${city} token' <> '' GROUP BY user_id",
}
TOLD = "by_city"
CHANGES = (
    "INSERT INTO lake.shop.orders VALUES (201, 1, 40), (202, 2, 50), (203, 19, 60)",
    "DELETE FROM lake.shop.orders WHERE id IN (4, 5)",
    "UPDATE lake.shop.users SET city = 'far' WHERE id = 3",
)


class Shop:
    """A warehouse of its own with a small DAG."""

    def __init__(self, folder):
        self.folder = folder
        self.engine = self.open()
        spark = self.engine.spark
        spark.sql("CREATE NAMESPACE lake.shop")
        kept = "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
        spark.sql(f"CREATE TABLE lake.shop.orders (id INT, user_id INT, amount INT) {kept}")
        spark.sql(f"CREATE TABLE lake.shop.users (id INT, city STRING) {kept}")
        spark.sql(
            "INSERT INTO lake.shop.users SELECT CAST(id AS INT), concat('c', id % 4) FROM range(20)"
        )
        spark.sql(
            "INSERT INTO lake.shop.orders SELECT CAST(id AS INT), CAST(id % 21 AS INT), "
            "CAST(id % 7 AS INT) FROM range(60)"
        )
        self.engine.begin()
        for name, query in VIEWS.items():
            self.engine.create_materialized_view(
                f"lake.shop.{name}", query, unique_id=f"model.{name}", changelog=name == TOLD
            )
        self.engine.publish()

    @property
    def meta(self):
        return self.folder / "streamsql.db"

    def open(self, **options):
        return Engine.open(self.folder, spark=embedded(str(self.folder)), **options)

    def reopen(self, lost=True):
        """Another process, after the store was lost."""
        self.engine.epochs.current.epoch = None
        self.engine.store.close()
        if lost:
            for file in self.folder.glob("streamsql.db*"):
                file.unlink()
        self.engine = self.open()
        return self.engine

    def change(self, *statements):
        for statement in statements or CHANGES:
            self.engine.spark.sql(statement)

    def rows(self, name, barrier=None):
        frame = self.engine.sql(f"SELECT * FROM lake.shop.{name}", barrier=barrier)
        return sorted(map(tuple, frame.collect()), key=str)

    def all(self, barrier=None):
        return {name: self.rows(name, barrier) for name in VIEWS}

    def wrong(self):
        return {name for name in VIEWS if self.engine.verify(f"lake.shop.{name}")}

    def modes(self, report):
        return {name: report.tables[f"lake.shop.{name}"].mode for name in VIEWS}

    def known(self):
        """All that the store knows of the newest version of every table."""
        store = self.engine.store
        latest = {
            name: (version.barrier, version.snapshot, dict(version.inputs))
            for name, version in store.latest_all().items()
        }
        jobs = {
            name: (job.sql, job.unique_id, job.refresh_mode, job.fingerprint, dict(job.config))
            for name, job in store.jobs().items()
        }
        return latest, jobs, store.topology(), store.last_committed(), store.id

    def refs(self):
        spark = self.engine.spark
        rows = spark.sql("SHOW TABLES IN lake.shop").collect()
        metas = {
            row["tableName"]: metadata.load(spark, TableName("lake", "shop", row["tableName"]))
            for row in rows
        }
        return {name: dict(meta.refs) for name, meta in metas.items()}

    def summed(self):
        """A changelog as it adds up."""
        rows = {}
        for row in self.engine.spark.table(f"lake.shop.{TOLD}__changelog").collect():
            key = tuple(row)[:-2]
            rows[key] = rows.get(key, 0) + (1 if row["_op"] == "+" else -1)
        return sorted((key for key, n in rows.items() if n), key=str)


@pytest.fixture
def shop(spark, tmp_path):
    made = Shop(tmp_path / "warehouse")
    yield made
    made.engine.epochs.current.epoch = None
    made.engine.close()


def test_a_store_that_was_lost_is_rebuilt_and_the_views_go_on_from_changes(shop):
    shop.change()
    first = shop.all()
    shop.engine.advance()
    shop.change("INSERT INTO lake.shop.orders VALUES (301, 3, 1), (302, 4, 2)")
    shop.engine.advance()
    shop.engine.sweep()
    before, refs, seen = shop.known(), shop.refs(), {n: shop.all(n) for n in (1, 2, 3)}
    assert seen[1] == first

    engine = shop.reopen()
    found = engine.rebuild()
    assert found.barrier == found.barriers == 3
    assert found.left == {}
    assert set(found.tables.values()) == {""}
    assert shop.known() == before
    assert shop.refs() == refs
    assert {n: shop.all(n) for n in (1, 2, 3)} == seen
    assert shop.wrong() == set()
    assert set(shop.modes(engine.advance()).values()) == {"noop"}

    shop.change(
        "INSERT INTO lake.shop.orders VALUES (401, 5, 7), (402, 6, 8)",
        "DELETE FROM lake.shop.orders WHERE id = 8",
    )
    report = engine.advance()
    assert report.barrier == 4
    assert set(shop.modes(report).values()) <= {"incremental", "append"}
    assert shop.wrong() == set()
    assert shop.summed() == shop.rows(TOLD)


def test_state_tables_and_what_views_say_of_state_and_keys_are_restored(shop):
    query = (
        "SELECT u.city, p.n FROM (SELECT user_id, count(*) AS n FROM lake.shop.orders "
        "GROUP BY user_id) p JOIN lake.shop.users u ON u.id = p.user_id"
    )
    key = TableKey("lake.shop.users", "id")
    shop.engine.create_materialized_view("lake.shop.popular", query, state=[3], keys=[key])
    shop.engine.create_materialized_view(
        "lake.shop.recent", VIEWS["lines"], state_ttl={"joins": {"u": "1 day"}}
    )
    shop.change()
    shop.engine.advance()
    before = shop.known()
    engine = shop.reopen()
    assert engine.rebuild().left == {}
    assert shop.known() == before
    (state,) = filter(is_state_table, engine.store.jobs())
    shop.change("INSERT INTO lake.shop.orders VALUES (401, 5, 7)")
    report = engine.advance()
    assert report.tables[state].mode == "incremental"
    views = ("lake.shop.popular", "lake.shop.recent")
    assert {report.tables[view].mode for view in views} <= {"incremental", "append"}
    assert engine.verify(state) == engine.verify("lake.shop.popular") == []
    engine.drop("lake.shop.popular")
    assert not any(map(is_state_table, engine.store.jobs()))


def test_views_that_were_built_anew_and_redefined_are_restored_as_they_are(shop):
    engine = shop.engine
    shop.change()
    columns = VIEWS["by_city"].replace("avg(amount) AS mean", "min(amount) AS least")
    engine.begin()
    engine.create_materialized_view("lake.shop.lines", VIEWS["lines"], full_refresh=True)
    engine.create_materialized_view("lake.shop.by_city", columns, changelog=True)
    cut = VIEWS["users_of"].replace("GROUP", "AND amount > 1 GROUP")
    engine.create_materialized_view("lake.shop.users_of", cut)
    engine.create_materialized_view(
        "lake.shop.cities", VIEWS["cities"], refresh_mode="incremental"
    )
    engine.publish()
    before, seen = shop.known(), {n: shop.all(n) for n in (1, 2)}
    engine = shop.reopen()
    found = engine.rebuild()
    assert (found.left, set(found.tables.values())) == ({}, {""})
    assert shop.known() == before
    assert {n: shop.all(n) for n in (1, 2)} == seen
    shop.change("INSERT INTO lake.shop.orders VALUES (401, 5, 7)")
    assert "full" not in shop.modes(engine.advance()).values()
    assert shop.wrong() == set()


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_barrier_that_was_published_in_part_is_published_whole(shop, nth):
    shop.change()
    engine = shop.engine
    with dying("table.written", nth):
        engine.begin()
        engine.create_materialized_view(
            "lake.shop.by_city", VIEWS["by_city"].replace("avg", "min"), changelog=True
        )
        engine.create_materialized_view("lake.shop.extra", "SELECT id FROM lake.shop.lines")
        engine.epochs.opened.advance()
        engine.publish()
    engine = shop.reopen()
    looked = engine.rebuild(dry_run=True)
    assert looked.published
    for _ in looked.published:
        with dying("rebuild.publish", moment="after"):
            engine.rebuild()
    with dying("rebuild.store"):
        engine.rebuild()
    found = engine.rebuild()
    assert (found.barrier, found.left) == (2, {})
    assert all(shop.engine.store.latest(f"lake.shop.{name}").barrier == 2 for name in VIEWS)
    assert shop.wrong() == set()
    assert engine.verify("lake.shop.extra") == []
    assert staging.staged_tables(engine.spark, "lake") == []
    assert not [ref for refs in shop.refs().values() for ref in refs if ref[-2:] == "_2"]
    assert set(shop.modes(engine.advance()).values()) == {"noop"}
    assert shop.summed() == shop.rows(TOLD)


def test_a_barrier_of_which_nothing_was_published_is_undone(shop):
    before = shop.all()
    shop.change()
    with dying("publish.table"):
        shop.engine.advance()
    engine = shop.reopen()
    found = engine.rebuild()
    assert (found.barrier, found.published) == (1, ())
    assert shop.all() == before
    assert not [ref for refs in shop.refs().values() for ref in refs if ref == "streamsql_2"]
    report = engine.advance()
    assert report.barrier == 3, "a number is not used again"
    assert set(shop.modes(report).values()) <= {"incremental", "append"}
    assert shop.wrong() == set()


def test_what_was_held_back_from_a_barrier_is_not_published_with_it(shop):
    shop.change()
    engine = shop.engine
    before = shop.rows("users_of")
    engine.begin()
    engine.epochs.opened.advance()
    engine.epochs.unstage_models(["model.users_of"])
    with dying("barrier.commit", moment="after"):
        engine.publish()
    engine = shop.reopen()
    assert engine.rebuild().published == ()
    assert shop.rows("users_of") == before
    engine.advance()
    assert shop.wrong() == set()


def test_a_store_that_is_not_empty_is_refused_and_unchanged(shop):
    before = shop.known()
    with pytest.raises(StreamSqlError) as caught:
        shop.engine.rebuild()
    assert caught.value.code == "META_CONFLICT"
    assert "move it away" in caught.value.hint
    assert shop.known() == before


def test_a_table_of_another_store_is_left_alone(shop, tmp_path):
    engine = shop.engine
    other = shop.open(meta=f"sqlite:///{tmp_path}/other.db")
    other.create_materialized_view("lake.shop.theirs", "SELECT id FROM lake.shop.orders")
    theirs, known = shop.refs()["theirs"], other.store.latest_all()
    tags = {tag for tag in shop.refs()["orders"] if other.store.id in tag}
    engine = shop.reopen()
    found = engine.rebuild()
    assert not any("theirs" in name for name in (*found.tables, *found.left))
    assert shop.refs()["theirs"] == theirs
    assert tags < set(shop.refs()["orders"])
    assert other.store.latest_all() == known
    shop.change()
    report = other.advance()
    assert report.tables["lake.shop.theirs"].mode == "incremental"
    other.close()


def test_a_store_at_another_address_takes_over_the_name_of_the_lost_one(shop, tmp_path):
    lost, refs = shop.engine.store.id, shop.refs()
    before = shop.known()
    shop.reopen()
    new = shop.open(meta=f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(StreamSqlError) as caught:
        new.rebuild()
    assert caught.value.code == "META_CONFLICT"
    assert lost in caught.value.given
    new.rebuild(lost)
    shop.engine.close()
    shop.engine = new
    assert shop.known() == before
    assert shop.refs() == refs
    new.close()
    shop.engine = shop.open(meta=f"sqlite:///{tmp_path}/new.db")
    assert shop.known() == before


def test_a_definition_that_is_not_that_of_the_rows_is_not_restored(shop):
    engine = shop.engine
    shop.change()
    engine.advance()
    name = TableName.parse("lake.shop.by_city")
    other = engine.store.jobs()["lake.shop.users_of"]
    staging.set_properties(
        engine.spark, name, {definition_property.DEFINITION: definition_property.encode(other)}
    )
    engine = shop.reopen()
    found = engine.rebuild()
    assert set(found.left) == {"lake.shop.by_city", "lake.shop.by_city__changelog"}
    assert not engine.queries.knows("lake.shop.by_city")
    assert engine.spark.table(name.sql).count() > 0
    report = engine.create_materialized_view("lake.shop.by_city", VIEWS["by_city"], changelog=True)
    assert report.mode == "full"
    engine.advance()
    assert shop.wrong() == set()


def test_a_plain_table_that_was_a_view_is_no_view_again(shop):
    engine = shop.engine
    engine.drop("lake.shop.cities", keep_table=True)
    engine = shop.reopen()
    found = engine.rebuild()
    assert "lake.shop.cities" not in {*found.tables, *found.left}
    assert engine.spark.table("lake.shop.cities").count() > 0


def test_tables_of_an_earlier_release_are_told_and_left(spark, tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(
            Provenance, "properties", lambda self: {BARRIER_PROPERTY: str(self.barrier)}
        )
        earlier.setattr(definition_property, "properties", lambda *_: {})
        earlier.setattr(definition_property, "keep", lambda *_: None)
        shop = Shop(tmp_path / "warehouse")
    # Only `users_of` has a row for it: that one learns its definition.
    shop.change("INSERT INTO lake.shop.orders VALUES (301, 20, 100)")
    shop.engine.advance()
    engine = shop.reopen()
    found = engine.rebuild()
    assert dict(found.tables) == {"lake.shop.users_of": ""}
    assert {"lake.shop.lines", "lake.shop.cities", "lake.shop.by_city"} < set(found.left)
    assert all("earlier release" in reason for reason in found.left.values())
    assert found.kept_from == 2
    assert engine.verify("lake.shop.users_of") == []
    assert engine.create_materialized_view("lake.shop.lines", VIEWS["lines"]).mode == "full"
    engine.close()


def test_the_command_tells_what_it_would_do_and_does_it(shop):
    shop.reopen().close()
    run = CliRunner().invoke
    arguments = ["meta", "rebuild", "--json", "--warehouse", str(shop.folder)]
    looked = run(main, [*arguments, "--dry-run"])
    assert looked.exit_code == 0, looked.output
    told = json.loads(looked.stdout)
    assert (told["dry_run"], told["barrier"], len(told["tables"])) == (True, 1, 5)
    with closing(sqlite3.connect(shop.meta)) as store:
        assert store.execute("SELECT count(*) FROM streamsql_job").fetchone() == (0,)
    done = run(main, [*arguments[:2], *arguments[3:]])
    assert "continues from changes" in done.output
    again = run(main, arguments)
    assert again.exit_code == 2
    assert "META_CONFLICT" in again.output
    shop.engine = shop.open()
    assert shop.wrong() == set()
