"""A table is revised: with all that comes from it, it goes back to a barrier and forward again."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.commits import table_maintenance
from tests.support.catalogs import own_catalog
from tests.support.clock import ahead

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("STREAMSQL_SEED", "1"))
ROUNDS = int(os.environ.get("STREAMSQL_REVISIONS", "6"))
VIEWS = ("lines", "by_customer", "by_kind", "top", "apart")


@pytest.fixture
def shop(spark, tmp_path_factory):
    """Orders and customers; two views over orders, one over both, one over a view, one apart."""
    folder = tmp_path_factory.mktemp("revised")
    own = own_catalog(spark, folder)
    session, catalog = own.session(), own.name
    base = f"{catalog}.shop"
    session.sql(f"CREATE NAMESPACE {base}")
    for table, columns in (
        ("orders", "id INT, customer INT, amount BIGINT"),
        ("customers", "id INT, kind STRING"),
        ("other", "id INT"),
    ):
        session.sql(
            f"CREATE TABLE {base}.{table} ({columns}) USING iceberg "
            "TBLPROPERTIES ('format-version' = '3')"
        )
    session.sql(f"INSERT INTO {base}.orders VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
    session.sql(f"INSERT INTO {base}.customers VALUES (1, 'a'), (2, 'b'), (NULL, NULL)")
    session.sql(f"INSERT INTO {base}.other VALUES (1)")
    engine = Engine.open(spark=session, catalog=catalog)
    engine.begin()
    for name, query in (
        ("lines", "SELECT id, customer, amount FROM {b}.orders WHERE amount > 0"),
        ("by_customer", "SELECT customer, sum(amount) AS total FROM {b}.lines GROUP BY customer"),
        (
            "by_kind",
            """SELECT kind, count(*) AS n, sum(total) AS total
            FROM {b}.by_customer v JOIN {b}.customers c ON v.customer = c.id GROUP BY kind""",
        ),
        ("top", "SELECT max(total) AS most FROM {b}.by_customer"),
        ("apart", "SELECT count(*) AS n FROM {b}.other"),
    ):
        engine.create_materialized_view(
            f"{base}.{name}", query.format(b=base), changelog=name == "by_customer"
        )
    engine.publish()
    shop = Shop(engine, base)
    yield shop
    engine.close()


class Shop:
    def __init__(self, engine, base):
        self.engine, self.base = engine, base

    @property
    def store(self):
        return self.engine.store

    def sql(self, text):
        return [tuple(row) for row in self.engine.spark.sql(text.format(b=self.base)).collect()]

    def epoch(self, *statements):
        """Run statements, then bring all views up to date; the barrier."""
        for statement in statements:
            self.sql(statement)
        return self.engine.advance().barrier

    def rows(self, view):
        # What main shows, whoever has written it.
        return sorted(
            self.sql(self.engine.adapter_api.visible(f"SELECT * FROM {self.base}.{view}")),
            key=repr,
        )

    def all_rows(self):
        return {view: self.rows(view) for view in VIEWS}

    def snapshots(self):
        latest = self.store.latest_all()
        return {view: latest[f"{self.base}.{view}"].snapshot for view in VIEWS}

    def heads(self):
        return {
            view: self.sql(f"SELECT snapshot_id FROM {{b}}.{view}.refs WHERE name = 'main'")[0][0]
            for view in VIEWS
        }

    def right(self):
        return all(not self.engine.verify(f"{self.base}.{view}") for view in VIEWS)

    def told(self):
        """What the changelog of by_customer adds up to."""
        rows = self.sql(
            "SELECT customer, total, CAST(sum(IF(_op = '+', 1, -1)) AS INT) AS w "
            "FROM {b}.by_customer__changelog GROUP BY ALL HAVING w <> 0"
        )
        return sorted(((c, t) for c, t, w in rows for _ in range(w)), key=repr)

    def revise(self, table, **options):
        report = self.engine.revise(f"{self.base}.{table}", **options)
        return SimpleNamespace(
            barrier=report.barrier,
            modes={name.rpartition(".")[2]: of.mode for name, of in report.tables.items()},
            reasons={name.rpartition(".")[2]: of.reason for name, of in report.tables.items()},
        )


def later(shop):
    """Three more epochs: new rows, changed ones, gone ones."""
    return [
        shop.epoch("INSERT INTO {b}.orders VALUES (4, 2, 40), (5, 1, 10)"),
        shop.epoch(
            "UPDATE {b}.orders SET amount = 21 WHERE id = 2",
            "INSERT INTO {b}.customers VALUES (3, 'a')",
        ),
        shop.epoch(
            "DELETE FROM {b}.orders WHERE id = 3", "INSERT INTO {b}.orders VALUES (6, 3, 5)"
        ),
    ]


def test_what_somebody_spoilt_is_made_good_from_an_earlier_barrier(shop):
    barriers = later(shop)
    before, apart = shop.all_rows(), shop.heads()["apart"]
    shop.sql("UPDATE {b}.by_customer SET total = total + 1000")
    shop.sql("DELETE FROM {b}.top")
    assert shop.all_rows() != before
    done = shop.revise("by_customer", to_barrier=barriers[0], mode="incremental")
    assert done.modes.keys() == {"by_customer", "by_kind", "top"}
    assert "full" not in done.modes.values()
    assert shop.all_rows() == before
    assert shop.right()
    assert shop.heads()["apart"] == apart
    assert shop.heads() == shop.snapshots()
    assert shop.told() == shop.rows("by_customer")


def test_after_a_revision_epochs_go_on_from_changes(shop):
    barriers = later(shop)
    shop.revise("lines", to_barrier=barriers[0])
    shop.sql("INSERT INTO {b}.orders VALUES (7, 1, 70), (8, NULL, 1)")
    report = shop.engine.advance()
    modes = {name.rpartition(".")[2]: of.mode for name, of in report.tables.items()}
    assert modes["apart"] == "noop"
    assert {modes[view] for view in VIEWS[:4]} <= {"incremental", "append"}
    assert shop.right()
    assert shop.told() == shop.rows("by_customer")


def test_a_view_that_nothing_has_touched_since_goes_back_without_a_spark_job(shop):
    last = later(shop)[-1]
    before = shop.all_rows()
    shop.sql("DELETE FROM {b}.by_kind")
    report = shop.engine.revise(f"{shop.base}.by_kind", to_barrier=last)
    (done,) = report.tables.values()
    assert (done.mode, done.jobs) == ("rollback", 0)
    assert shop.all_rows() == before


def test_a_full_revision_computes_the_cone_anew_and_nothing_else(shop):
    barriers = later(shop)
    before, heads = shop.all_rows(), shop.heads()
    done = shop.revise("lines", to_barrier=barriers[1], mode="full")
    assert done.modes == dict.fromkeys(VIEWS[:4], "full")
    assert shop.all_rows() == before
    now = shop.heads()
    assert [view for view in VIEWS if now[view] == heads[view]] == ["apart"]
    assert shop.right()
    assert shop.told() == shop.rows("by_customer")


def test_a_revision_reads_the_inputs_that_the_last_barrier_recorded(shop):
    barriers = later(shop)
    before = shop.all_rows()
    shop.sql("INSERT INTO {b}.orders VALUES (9, 1, 900)")
    shop.revise("lines", to_barrier=barriers[0])
    assert shop.all_rows() == before, "what no barrier has taken up is for the next epoch"
    shop.engine.advance()
    assert shop.rows("top") == [(10 + 21 + 10 + 900,)]
    assert shop.right()


def test_readers_at_a_barrier_keep_what_they_had(shop):
    barriers = later(shop)
    with shop.engine.reader() as reader:
        text = f"SELECT * FROM {shop.base}.by_kind"
        before = sorted(map(tuple, reader.sql(text).collect()))
        shop.revise(
            "orders", sql=f"UPDATE {shop.base}.orders SET amount = amount * 2", mode="full"
        )
        shop.revise("lines", to_barrier=barriers[1])
        assert sorted(map(tuple, reader.sql(text).collect())) == before
    assert shop.rows("by_kind") != before


def test_an_outside_table_is_corrected_and_all_that_comes_from_it_follows(shop):
    later(shop)
    heads = shop.heads()
    orders = f"{shop.base}.orders"
    statements = f"""
        UPDATE {orders} SET amount = 1000 WHERE id = 1;
        INSERT INTO {orders} SELECT id + 100, customer, amount FROM {orders} WHERE id = 1;
        DELETE FROM {orders} WHERE id = 6;
    """
    done = shop.revise("orders", sql=statements)
    assert set(done.modes) == set(VIEWS[:4])
    assert "full" not in done.modes.values()
    assert (1, 2031) in shop.rows("by_customer")
    assert shop.sql("SELECT count(*) FROM {b}.orders WHERE amount = 1000") == [(2,)]
    assert shop.right()
    assert shop.heads()["apart"] == heads["apart"]
    assert shop.told() == shop.rows("by_customer")
    branches = shop.sql("SELECT name FROM {b}.orders.refs WHERE type = 'BRANCH'")
    assert branches == [("main",)]


def test_a_correction_that_fails_in_the_middle_leaves_the_table_as_it_was(shop):
    before = shop.sql("SELECT * FROM {b}.orders ORDER BY id")
    with pytest.raises(Exception, match="no_such_column"):
        shop.revise(
            "orders",
            sql=f"DELETE FROM {shop.base}.orders; "
            f"UPDATE {shop.base}.orders SET no_such_column = 1",
        )
    assert shop.sql("SELECT * FROM {b}.orders ORDER BY id") == before
    assert shop.sql("SELECT name FROM {b}.orders.refs WHERE type = 'BRANCH'") == [("main",)]
    assert shop.engine.advance().barrier == shop.store.last_committed()
    assert shop.right()


def test_an_outside_table_goes_back_and_its_views_with_it(shop):
    first = shop.store.last_committed()
    before = shop.all_rows()
    later(shop)
    shop.sql("INSERT INTO {b}.other VALUES (2)")
    shop.engine.advance()
    done = shop.revise("orders", to_barrier=first, mode="incremental")
    assert done.modes["lines"] == "rollback"
    now = shop.all_rows()
    assert {view: now[view] for view in ("lines", "by_customer", "top")} == {
        view: before[view] for view in ("lines", "by_customer", "top")
    }
    assert now["apart"] == [(2,)]
    assert shop.sql("SELECT count(*) FROM {b}.orders") == [(3,)]
    assert shop.right()


def test_a_view_gets_a_corrected_query_and_its_readers_follow(shop):
    later(shop)
    query = f"SELECT id, customer, amount * 2 AS amount FROM {shop.base}.orders WHERE amount > 0"
    totals = dict(shop.rows("by_customer"))
    shop.revise("lines", sql=query)
    assert dict(shop.rows("by_customer")) == {who: 2 * total for who, total in totals.items()}
    assert shop.right()
    assert shop.told() == shop.rows("by_customer")


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(shop):
    barriers = later(shop)
    heads, last = shop.heads(), shop.store.last_committed()
    found = shop.engine.plan_revision(f"{shop.base}.orders", to_barrier=barriers[0])
    short = [(step.table.rpartition(".")[2], step.mode) for step in found.steps]
    assert short[0] == ("orders", "root")
    assert set(short[1:]) == {(view, "incremental") for view in VIEWS[:4]}
    assert found.steps[0].undone >= 4, "a row updated, one deleted, one inserted"
    assert found.left_alone == (f"{shop.base}.apart",)
    assert (shop.heads(), shop.store.last_committed()) == (heads, last)


def test_where_an_earlier_version_cannot_be_used_it_is_computed_in_full_or_refused(shop):
    barriers = later(shop)
    shop.engine.create_materialized_view(
        f"{shop.base}.top", f"SELECT min(total) AS least FROM {shop.base}.by_customer"
    )
    with pytest.raises(StreamSqlError, match="a different definition made its rows") as refused:
        shop.revise("by_customer", to_barrier=barriers[0], mode="incremental")
    assert refused.value.code == "REVISION_IMPOSSIBLE"
    done = shop.revise("by_customer", to_barrier=barriers[0])
    assert done.modes["top"] == "full"
    assert done.modes["by_customer"] != "full"
    assert shop.right()


def test_where_a_version_has_expired_the_table_is_computed_in_full(shop):
    barriers = later(shop)
    top = f"{shop.base}.top"
    then = shop.store.latest_all(barriers[0])[top].snapshot
    shop.engine.sweep()  # The version that was replaced last has a tag until then.
    table_maintenance.expire(shop.engine.spark, TableName.parse(top), [then])
    shop.sql("DELETE FROM {b}.by_customer")
    done = shop.revise("by_customer", to_barrier=barriers[0])
    assert done.modes["top"] == "full"
    assert "is gone" in done.reasons["top"]
    assert done.modes["by_customer"] != "full"
    assert shop.right()


def test_a_view_that_lags_behind_and_is_not_revised_stays_where_it_is(shop):
    later(shop)
    shop.sql("INSERT INTO {b}.orders VALUES (9, 2, 90)")
    # Only this one is brought up to date: `by_kind` reads `by_customer`, which stays behind.
    shop.engine.create_materialized_view(
        f"{shop.base}.counted", f"SELECT count(*) AS n FROM {shop.base}.orders"
    )
    heads = shop.heads()
    shop.revise("by_kind", to_barrier=1, mode="full")
    now = shop.heads()
    assert [view for view in VIEWS if now[view] != heads[view]] == ["by_kind"]
    assert shop.right()


@pytest.mark.parametrize(
    ("table", "options", "code"),
    [
        ("nothing", {"to_barrier": 1}, "DEFINITION_MISSING"),
        ("lines", {}, "REVISION_IMPOSSIBLE"),
        ("lines", {"to_barrier": 99}, "META_CONFLICT"),
        ("lines", {"to_barrier": 1, "sql": "SELECT 1"}, "REVISION_IMPOSSIBLE"),
        ("lines", {"to_barrier": 1, "mode": "some"}, "CONFIG_INVALID"),
        ("orders", {"sql": "DROP TABLE orders"}, "REVISION_IMPOSSIBLE"),
        ("orders", {"sql": "DELETE FROM other"}, "REVISION_IMPOSSIBLE"),
        ("by_customer__changelog", {"to_barrier": 1}, "DEFINITION_MISSING"),
    ],
)
def test_a_revision_that_means_nothing_is_refused_and_changes_nothing(shop, table, options, code):
    heads = shop.heads()
    with pytest.raises(StreamSqlError) as refused:
        shop.revise(table, **options)
    assert refused.value.code == code
    assert shop.heads() == heads
    assert shop.engine.advance().barrier == 1


def test_the_audit_log_tells_of_a_revision(shop):
    later(shop)
    shop.revise("lines", to_barrier=1)
    (entry,) = [entry for entry in shop.store.audit() if entry.action == "revise"]
    assert entry.detail["table"] == f"{shop.base}.lines"
    assert entry.detail["to_barrier"] == 1


def _written(shop, rng):
    """One random change of the outside tables."""
    key, amount = rng.randint(1, 12), rng.randint(-5, 50)
    who = rng.choice(["NULL", 1, 2, 3])
    shop.sql(
        rng.choice(
            [
                f"INSERT INTO {{b}}.orders VALUES ({key}, {who}, {amount}), ({key}, {who}, NULL)",
                f"DELETE FROM {{b}}.orders WHERE id = {key} OR customer IS NULL",
                f"UPDATE {{b}}.orders SET amount = {amount}, customer = {who} WHERE id = {key}",
                f"UPDATE {{b}}.customers SET kind = 'k{amount % 3}' WHERE id = {key % 4}",
                f"INSERT INTO {{b}}.other VALUES ({key})",
            ]
        )
    )


def _spoilt(shop, rng, view):
    """Somebody writes into a view."""
    column = shop.engine.spark.table(f"{shop.base}.{view}").columns[0]
    somewhere = rng.choice(["true", f"hash({column}) % 2 = 0"])
    shop.sql(f"DELETE FROM {{b}}.{view} WHERE {somewhere}")


def test_random_revisions_leave_every_view_equal_to_its_query(shop):
    rng = random.Random(SEED)
    barriers = [shop.store.last_committed()]
    modes = set()
    for _ in range(ROUNDS):
        for _ in range(rng.randint(1, 2)):
            _written(shop, rng)
            _written(shop, rng)
            barriers.append(shop.engine.advance().barrier)
        before, heads = shop.all_rows(), shop.heads()
        table, back, mode = rng.choice(VIEWS), rng.choice(barriers), rng.choice(["auto", "full"])
        if rng.random() < 0.3:
            amount = rng.randint(0, 9)
            done = shop.revise(
                "orders",
                sql=f"UPDATE {shop.base}.orders SET amount = {amount} WHERE id % 2 = {amount % 2}",
                to_barrier=rng.choice([None, back]),
            )
        else:
            _spoilt(shop, rng, table)
            done = shop.revise(table, to_barrier=back, mode=mode)
            assert shop.all_rows() == before, (SEED, table, back, mode)
        modes |= set(done.modes.values())
        left = [view for view in VIEWS if view not in done.modes]
        assert [shop.heads()[view] for view in left] == [heads[view] for view in left]
        assert shop.right(), (SEED, table, back, mode)
        assert shop.told() == shop.rows("by_customer")
        barriers.append(shop.store.last_committed())
    assert "full" in modes
    assert modes & {"incremental", "append", "rollback"}


@pytest.fixture
def clock(shop):
    with ahead(shop.engine) as made:
        yield made


def test_a_view_that_has_forgotten_is_not_revised_from_changes(shop, clock):
    """What it forgot, and when, cannot be played again: in full it is exact."""
    view = f"{shop.base}.recent"
    query = (
        f"SELECT o.id, c.kind FROM {shop.base}.orders o "
        f"JOIN {shop.base}.customers c ON o.customer = c.id"
    )
    shop.engine.create_materialized_view(view, query, state_ttl="1 hour")
    good = shop.epoch("INSERT INTO {b}.orders VALUES (9, 2, 1)")
    clock.jump(3601)
    shop.epoch("INSERT INTO {b}.orders VALUES (4, 1, 40)")
    before = sorted(shop.sql(f"SELECT * FROM {view}"))
    assert 4 not in {row[0] for row in before}
    with pytest.raises(StreamSqlError) as found:
        shop.engine.revise(view, to_barrier=good, mode="incremental")
    assert found.value.code == "REVISION_IMPOSSIBLE"
    assert "it has forgotten state since barrier" in str(found.value)
    assert sorted(shop.sql(f"SELECT * FROM {view}")) == before
    (step,) = shop.engine.plan_revision(view, to_barrier=good).steps
    assert step.mode == "full"
    assert "it has forgotten state since barrier" in step.reason
    shop.engine.revise(view, to_barrier=good)
    assert shop.engine.verify(view) == []
    assert 4 in {row[0] for row in shop.sql(f"SELECT * FROM {view}")}
