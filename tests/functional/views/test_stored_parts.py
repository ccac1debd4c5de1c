"""Parts of views' queries are stored in state tables, which views with equal parts share."""

from __future__ import annotations

import json
import re

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.compiler.state.stored_parts import parts_in
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect import topology_text
from dbt_streamsql.meta.inspect.history import load
from dbt_streamsql.meta.inspect.overview import topology
from dbt_streamsql.plan.definition.stored_part import is_state_table
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.document import PlanDocument, differences
from dbt_streamsql.plan.explained import explain
from dbt_streamsql.plan.program import steps
from dbt_streamsql.tuning import Tuning
from tests.support.catalogs import drop_schema
from tests.support.steps import dying

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

PER_ITEM = "SELECT item, sum(v) AS total, count(*) AS n FROM {s}.sales GROUP BY item"
QUERIES = (
    "SELECT i.name, x.total, x.n FROM ({part}) x JOIN {s}.items i ON i.item = x.item",
    "SELECT y.n, count(*) AS items, max(y.total) AS most FROM ({part}) y GROUP BY y.n",
    (
        "SELECT i.name FROM {s}.items i WHERE NOT EXISTS "
        "(SELECT 1 FROM ({part}) z WHERE z.item = i.item AND z.total > z.n)"
    ),
    # The same part in other words.
    (
        "SELECT q.much + 1 AS much, q.times, i.item FROM {s}.items i LEFT JOIN "
        "(SELECT count(*) AS times, t.item AS what, sum(t.v) AS much FROM {s}.sales t "
        "GROUP BY t.item) q ON q.what = i.item"
    ),
)
NESTED = (
    "SELECT i.name, r.place FROM (SELECT item, rank() OVER (ORDER BY total DESC, n, item) "
    "AS place FROM ({part}) p) r JOIN {s}.items i ON i.item = r.item"
)

PARTNERS = (
    (
        "SELECT i.name FROM {s}.items i WHERE EXISTS "
        "(SELECT 1 FROM {s}.sales z WHERE z.item = i.item AND z.v > 3)"
    ),
    (
        "SELECT i.name, i.item FROM {s}.items i WHERE NOT EXISTS "
        "(SELECT 1 FROM {s}.sales t WHERE i.item = t.item AND t.v > 3)"
    ),
    (
        "SELECT i.name, q.k, q.k + 1 AS next FROM {s}.items i LEFT JOIN {s}.sales q "
        "ON q.item = i.item AND q.v > 3 AND i.name <> 'i1'"
    ),
    (
        "SELECT n, count(*) AS items FROM (SELECT i.item, count(q.k) AS n FROM {s}.items i "
        "LEFT JOIN {s}.sales q ON q.item = i.item AND q.v > 3 GROUP BY i.item) x GROUP BY n"
    ),
    (
        "SELECT s.k, s.item FROM {s}.sales s WHERE s.item IN "
        "(SELECT item FROM {s}.sales z WHERE v > 3) AND NOT EXISTS "
        "(SELECT 1 FROM {s}.sales o WHERE o.v = s.v AND o.item <=> s.item + 1)"
    ),
)
"""Queries that ask which items have a sale over three; the last one asks something else, too."""

OTHER = "SELECT x.n, i.name FROM (SELECT DISTINCT item, v AS n FROM {s}.sales) x, {s}.items i"


LEFT = "SELECT i.name, i.item, q.k FROM {s}.items i LEFT JOIN {s}.sales q ON q.item = i.item"
FULL = "SELECT i.name, q.k, q.v FROM {s}.items i FULL JOIN {s}.sales q ON q.item = i.item"
COPIED = {
    "joined": "SELECT i.name, s.k FROM {s}.items i JOIN {s}.sales s ON s.item = i.item "
    "WHERE s.v > 1 AND i.name <> 'i2'",
    "exists": "SELECT i.name FROM {s}.items i WHERE NOT EXISTS "
    "(SELECT 1 FROM {s}.sales s WHERE s.item = i.item AND s.v + i.item > 4)",
    "left": LEFT + " AND q.v > 1 AND i.name <> 'i2'",
}


@pytest.fixture
def world(engine, schema, tune):
    """Sales of items; nothing is compared, so that changes go through the state tables."""
    tune(engine, compared_rows=-1, decided_again=0)
    s = f"lake.{schema}"
    for name, text in (
        ("sales", "SELECT id AS k, nullif(id % 13, 7) AS item, id % 5 AS v FROM range(200)"),
        ("items", "SELECT id AS item, concat('i', id % 4) AS name FROM range(15)"),
    ):
        engine.spark.sql(
            f"CREATE TABLE {s}.{name} TBLPROPERTIES ('format-version' = '3') AS {text}"
        )
    return World(engine, s)


class World:
    """Views over sales and items."""

    def __init__(self, engine, s):
        self.engine, self.s = engine, s
        self.names = []

    def query(self, text):
        return text.format(s=self.s, part=PER_ITEM.format(s=self.s))

    def view(self, text, **options):
        name = f"{self.s}.v{len(self.names)}"
        self.engine.create_materialized_view(name, self.query(text), **options)
        self.names.append(name)
        return name

    def number(self, view, table):
        """The number by which a copy of a table is stored."""
        parts = parts_in(self.engine.plan(view))
        return next(p.operators[0] for p in parts if p.copy and p.tables == (f"{self.s}.{table}",))

    def change(self, number):
        run = self.engine.spark.sql
        run(f"INSERT INTO {self.s}.sales VALUES ({1000 + number}, {number}, 9), (2000, NULL, 1)")
        run(f"DELETE FROM {self.s}.sales WHERE item = {number + 3}")
        run(f"UPDATE {self.s}.sales SET item = item + 1 WHERE k % 40 = {number}")
        run(f"UPDATE {self.s}.items SET name = concat(name, '!') WHERE item = {number + 4}")

    def bytes_of(self, table):
        files = self.engine.spark.sql(f"SELECT file_size_in_bytes AS n FROM {table}.files")
        return sum(row.n for row in files.collect())

    @property
    def states(self):
        return sorted(filter(is_state_table, self.engine.store.jobs()))

    def check(self):
        for name in (*self.names, *self.states):
            assert self.engine.verify(name) == [], name

    def tables(self):
        shown = self.engine.spark.sql(f"SHOW TABLES IN {self.s}").collect()
        return sorted(row.tableName for row in shown if is_state_table(row.tableName))


def test_views_share_one_table_for_equal_parts_and_equal_their_queries(world):
    for text in QUERIES:
        world.view(text, state="all")
    assert len(world.states) == 1
    for number in range(3):
        world.change(number)
        report = world.engine.advance()
        assert report.tables[world.states[0]].mode == "incremental"
        world.check()


def test_the_keys_of_partners_are_stored_once_for_all_joins(world):
    for text in PARTNERS:
        world.view(text, state="all")
    # One for the items over three, one for pairs, one for the inner count.
    assert len(world.states) == 3
    for number in range(3):
        world.change(number)
        # The first partner of an item comes, and the last one of another goes.
        run = world.engine.spark.sql
        run(f"INSERT INTO {world.s}.items VALUES (NULL, 'none'), ({number}, 'again')")
        run(f"INSERT INTO {world.s}.sales VALUES ({3000 + number}, {13 - number % 2}, 4)")
        run(f"DELETE FROM {world.s}.sales WHERE item = {number + 8} AND v > 3")
        reports = world.engine.advance().tables
        assert {reports[name].mode for name in world.states} <= {"incremental", "append", "noop"}
        world.check()


def test_the_right_side_of_a_join_is_not_read_again_for_its_keys(world):
    name = world.view(PARTNERS[1], state="all")
    (state,) = world.states
    plan = world.engine.plan(name)
    read = [step.table for step in plan.steps if isinstance(step, (steps.State, steps.Changes))]
    assert f"{world.s}.sales" not in read
    assert state in read
    told = f"the keys of a side, in {state} .*; stored: "
    assert re.search(told, world.engine.explain(name))


def test_keys_that_are_found_in_the_changes_are_not_stored_by_themselves(world, tune):
    tune(world.engine, storing=1e-7)
    key = TableKey(f"{world.s}.sales", "item", f"{world.s}.items", "item")
    world.engine.spark.sql(f"INSERT INTO {world.s}.items VALUES (77, 'new')")
    world.view(PARTNERS[0], keys=[key])
    assert world.states == []
    world.view(PARTNERS[0])
    assert len(world.states) == 1


def test_keys_are_stored_where_the_parent_never_changes(world, tune):
    tune(world.engine, storing=1e-7)
    key = TableKey(f"{world.s}.sales", "item", f"{world.s}.items", "item")
    world.view(PARTNERS[0], keys=[key])
    assert len(world.states) == 1, "changes of the items say nothing: there are none"


def test_the_keys_of_both_sides_of_a_full_join_are_stored(world):
    name = world.view(FULL, state="all")
    assert len(world.states) == 2
    read = world.engine.plan(name).tables
    assert set(world.states) < set(read)
    for number in range(3):
        world.change(number)
        run = world.engine.spark.sql
        run(f"INSERT INTO {world.s}.items VALUES (NULL, 'none'), ({number + 20}, 'alone')")
        run(f"DELETE FROM {world.s}.items WHERE item = {number + 2}")
        run(f"INSERT INTO {world.s}.sales VALUES ({3000 + number}, {19 + number}, 4)")
        world.engine.advance()
        world.check()


def test_the_rows_of_an_outer_join_are_stored_where_several_views_have_it(world, tune):
    tune(world.engine, storing=1e-7)
    queries = [
        f"SELECT x.name, count(x.k) AS n FROM ({LEFT}) x GROUP BY x.name",
        f"SELECT y.k, max(y.name) AS name FROM ({LEFT}) y GROUP BY y.k",
    ]
    world.view(queries[0], state="all")
    (keys,) = world.states
    assert "DISTINCT" in world.engine.plan(keys).sql or "GROUP BY" in world.engine.plan(keys).sql
    first = world.view(queries[0])
    second = world.view(queries[1])
    world.engine.create_materialized_view(first, world.query(queries[0]), full_refresh=True)
    (rows,) = set(world.engine.plan(first).tables)
    assert world.engine.plan(second).tables == (rows,)
    assert rows in world.states
    for number in range(3):
        world.change(number)
        world.engine.advance()
        world.check()


@pytest.mark.parametrize("query", ["joined", "exists", "left"])
def test_a_copy_of_what_joins_read_is_stored_by_its_number(world, query):
    text = COPIED[query]
    name = world.view(text, state="none")
    at = world.number(name, "sales")
    assert "a copy is stored only where `state` names its number" in world.engine.explain(
        world.view(text)
    )
    world.engine.create_materialized_view(name, world.query(text), state=[at])
    (state,) = world.states
    assert f"{world.s}.sales" not in world.engine.plan(name).tables
    if query == "joined":
        rows = world.engine.spark.table(state)
        wanted = f"SELECT item, k FROM {world.s}.sales WHERE v > 1"
        assert sorted(map(str, rows.select("c0", "c1").collect())) == sorted(
            str(row) for row in world.engine.spark.sql(wanted).toDF("c0", "c1").collect()
        )
    for number in range(3):
        world.change(number)
        run = world.engine.spark.sql
        run(f"INSERT INTO {world.s}.sales VALUES (5000, {number}, 0), (5000, {number}, 3)")
        report = world.engine.advance()
        assert report.tables[state].mode != "full"
        world.check()


def test_a_copy_lies_in_the_order_of_the_column_that_joins(world):
    name = world.view(COPIED["joined"], state="none")
    at = world.number(name, "sales")
    world.engine.create_materialized_view(name, world.query(COPIED["joined"]), state=[at])
    (state,) = world.states
    stored = world.engine.spark.sql(f"SELECT c0, c1 FROM {state}").collect()
    items = [-1 if row.c0 is None else row.c0 for row in stored]
    assert items == sorted(items)
    assert [row.c1 for row in stored] != sorted(row.c1 for row in stored)


def test_views_of_another_schema_share_it_too(world, engine, schema):
    world.view(QUERIES[0], state="all")
    engine.spark.sql(f"CREATE NAMESPACE {world.s}_b")
    other = f"{world.s}_b.v"
    engine.create_materialized_view(other, world.query(QUERIES[1]), state="all")
    assert len(world.states) == 1
    world.change(0)
    engine.advance()
    assert engine.verify(other) == []
    drop_schema(engine, f"{schema}_b")


def test_a_stored_part_is_kept_from_a_stored_part_below_it(world):
    world.view(QUERIES[0], state="all")
    world.view(NESTED, state="all")
    assert len(world.states) == 2
    for number in range(2):
        world.change(number)
        world.engine.advance()
        world.check()


def test_a_part_is_stored_by_itself_where_that_costs_less_than_it_saves(world, tune):
    name = world.view(QUERIES[0])
    assert world.states == []
    told = world.engine.explain(name)
    assert "not stored: 200 rows are read for its old and new rows, about 0.0 s" in told
    tune(world.engine, storing=0.0)
    assert "it is stored when that is decided again" in world.engine.explain(name)
    world.change(0)
    world.engine.advance()
    assert world.states == []
    world.engine.create_materialized_view(name, world.query(QUERIES[0]), full_refresh=True)
    assert len(world.states) == 1
    world.view(QUERIES[1])
    told = world.engine.explain(name)
    assert "read by 2 views; saves about 0.0 s of an epoch and takes" in told
    world.change(1)
    world.engine.advance()
    world.check()
    assert re.search(r"stored: 1\d rows, \d\.\dKB, read by 2 views", world.engine.explain(name))


def test_a_view_that_is_computed_in_full_is_refreshed_compiled_and_explained_too(world):
    query = f"SELECT item, rand() AS r FROM (SELECT item, sum(v) FROM {world.s}.sales GROUP BY 1)"
    for mode in ("auto", "full"):
        name = f"{world.s}.whole_{mode}"
        for _ in range(2):
            report = world.engine.create_materialized_view(
                name, query, refresh_mode=mode, full_refresh=True
            )
            assert report.mode == "full"
        assert world.engine.compile(query, into=name, refresh_mode=mode).mode == "full"
        assert "full refresh" in world.engine.explain(name)


@pytest.mark.parametrize(("rows", "stored"), [(200_000, 0), (1_000_000, 1)])
def test_what_is_stored_follows_from_the_rows_that_are_read(world, tune, rows, stored):
    tune(world.engine, storing=0.2)
    world.engine.spark.sql(
        f"CREATE TABLE {world.s}.many TBLPROPERTIES ('format-version' = '3') AS "
        f"SELECT id AS k, id % 7 AS item, id % 5 AS v FROM range({rows})"
    )
    query = QUERIES[0].replace("{part}", PER_ITEM.replace("sales", "many"))
    world.view(query.replace("{s}", world.s))
    assert len(world.states) == stored


def test_state_tables_stay_within_their_budget(world):
    small = Engine.open(spark=world.engine.spark, state_budget=100, tuning=Tuning(storing=0.0))
    first, second = f"{world.s}.first", f"{world.s}.second"
    small.create_materialized_view(first, world.query(QUERIES[0]))
    assert len(world.states) == 1
    small.create_materialized_view(second, world.query(OTHER))
    assert len(world.states) == 1
    assert re.search(
        r"the state tables have .*KB, and `state_budget` is 100B", small.explain(second)
    )
    small.create_materialized_view(first, world.query(QUERIES[0]), full_refresh=True)
    assert world.states == []
    world.names += [first, second]
    world.check()


def test_the_largest_state_table_goes_where_the_budget_is_exceeded(world):
    wide = "SELECT x.k, i.name FROM (SELECT DISTINCT k, item FROM {s}.sales) x, {s}.items i"
    roomy = Engine.open(spark=world.engine.spark, tuning=Tuning(storing=0.0))
    for at, text in enumerate((QUERIES[0], wide)):
        roomy.create_materialized_view(f"{world.s}.v{at}", world.query(text))
    views = {
        world.engine.plan(f"{world.s}.v{at}").parts[0].stored: (f"{world.s}.v{at}", text)
        for at, text in enumerate((QUERIES[0], wide))
    }
    small, large = sorted(views, key=world.bytes_of)
    tight = Engine.open(
        spark=world.engine.spark,
        state_budget=world.bytes_of(large),
        tuning=Tuning(storing=0.0),
    )
    for table in (small, large):
        name, text = views[table]
        tight.create_materialized_view(name, world.query(text), full_refresh=True)
        world.names.append(name)
    assert world.states == [small]
    world.check()


def test_what_is_stored_can_change_while_the_view_lives(world):
    name = world.view(QUERIES[0], state="none")
    for number, state in enumerate(("all", "none", [3], [2], "all")):
        world.change(number)
        report = world.engine.create_materialized_view(name, world.query(QUERIES[0]), state=state)
        # Its rows are kept, and brought to this barrier as before.
        assert report.mode in ("incremental", "noop"), report.reason
        assert len(world.states) == (0 if state in ("none", [2]) else 1), state
        world.check()
        world.change(number + 5)
        world.engine.advance()
        world.check()


def test_a_state_table_goes_with_its_last_reader_also_after_a_crash(world):
    first, second = world.view(QUERIES[0], state="all"), world.view(NESTED, state="all")
    assert len(world.tables()) == 2
    world.engine.drop(second)
    world.names.remove(second)
    assert len(world.tables()) == len(world.states) == 1
    with dying("sweep.state"):
        world.engine.drop(first)
    assert len(world.tables()) == 1
    world.change(0)
    world.engine.advance()
    assert world.tables() == world.states == []


def test_a_view_is_compared_with_what_users_see_not_with_its_state_table(world):
    name = world.view(QUERIES[0], state="all")
    (state,) = world.states
    world.engine.spark.sql(f"UPDATE {state} SET c1 = c1 + 1 WHERE c0 = 2")
    world.engine.spark.sql(f"UPDATE {world.s}.items SET name = 'x' WHERE item = 2")
    world.engine.advance()
    world.check()
    assert name in world.names


def test_explain_and_the_topology_show_what_is_stored(world):
    name = world.view(QUERIES[0], state="all")
    (state,) = world.states
    told = world.engine.compile(world.query(QUERIES[0]), into=name, state="all").explain()
    assert f"its rows, in {state}" in told
    drawn = topology(load(world.engine.store))
    assert f"{state}  [state table, current" in topology_text.text(drawn)
    kinds = {node.table: node.kind for node in drawn.nodes}
    assert (kinds[state], kinds[name]) == ("state", "view")


def test_the_topology_has_the_sizes_of_tables_as_they_are_now(world):
    name = world.view(QUERIES[0], state="all")
    for number in range(2):
        world.change(number)
        world.engine.advance()
        drawn = topology(load(world.engine.store))
        sizes = {node.table: node.size for node in drawn.nodes}
        for table in (name, *world.states):
            count = world.engine.spark.table(table).count()
            rows, size = sizes[table]
            assert rows == count > 0
            assert 0 < size < 1_000_000
            assert f"{count:,} rows, " in topology_text.text(drawn)


def test_nothing_is_stored_of_a_view_that_forgets(world):
    name = world.view(QUERIES[0], state="all", state_ttl={"joins": {"i": "1 day"}})
    assert world.states == []
    world.change(0)
    world.engine.advance()
    assert world.engine.verify(name) == []


def test_a_part_that_depends_on_the_time_of_the_barrier_is_not_stored(world):
    part = PER_ITEM.replace(" GROUP BY", " WHERE timestamp_seconds(k) < now() GROUP BY")
    world.view(QUERIES[0].replace("{part}", part), state="all")
    assert world.states == []
    world.change(0)
    world.engine.advance()
    world.check()


def test_another_query_over_the_same_part_is_computed_from_its_state_table(world):
    name = world.view(QUERIES[0], state="all")
    world.change(0)
    other = QUERIES[0].replace("x.total", "x.total + 1 AS total") + " WHERE x.n > 2"
    world.engine.create_materialized_view(name, world.query(other), state="all")
    assert len(world.states) == 1
    world.check()
    world.change(1)
    world.engine.advance()
    world.check()


@pytest.mark.parametrize("given", ["some", [0], [True], 3, ["2"]])
def test_a_wrong_choice_names_the_right_ones(world, given):
    with pytest.raises(StreamSqlError) as caught:
        world.view(QUERIES[0], state=given)
    assert caught.value.code == "CONFIG_INVALID"
    assert "auto, none, all" in str(caught.value)


def test_a_revision_goes_through_state_tables(world):
    name = world.view(QUERIES[0], state="all")
    for number in range(2):
        world.change(number)
        world.engine.advance()
    world.engine.revise(
        f"{world.s}.sales", sql=f"UPDATE {world.s}.sales SET v = v + 1 WHERE item = 5"
    )
    world.check()
    first = world.engine.store.latest(name).barrier - 1
    world.engine.revise(world.states[0], to_barrier=first)
    world.check()


def test_a_plan_file_says_which_parts_are_stored(world):
    view = world.view(QUERIES[1], state="none")
    query = world.query(QUERIES[1])
    plan = world.engine.compile(query, into=view, state="all").document
    assert [node.stored for node in plan.nodes].count(True) == 1
    [part] = plan.stored
    assert "stored in a state table" in explain(plan)
    assert PlanDocument.from_json(plan.to_json()) == plan
    world.engine.execute(plan)
    assert len(world.states) == 1
    world.change(1)
    world.engine.advance()
    world.check()

    without = with_stored(plan, part, False)
    assert differences(plan, without) == [
        f"node {part} ({plan.nodes[part - 1].description}): computed from its inputs, not stored"
    ]
    # The file wins over the config.
    world.engine.create_materialized_view(view, query, state="all", plan=without)
    assert world.states == []
    world.check()


def test_a_plan_file_that_stores_what_cannot_be_stored_is_refused(world):
    view = world.view(QUERIES[1], state="none")
    query = world.query(QUERIES[1])
    plan = world.engine.compile(query, into=view, state="none").document
    assert plan.stored == ()
    with pytest.raises(StreamSqlError, match="nothing of it can be stored") as caught:
        world.engine.execute(with_stored(plan, 1, True))
    assert caught.value.code == "PLAN_MISMATCH"
    assert world.states == []
    other = world.query(QUERIES[0])
    forgets = world.engine.compile(other, state_ttl={"joins": {"i": "1 day"}}).document
    assert forgets.stored is None


def with_stored(plan, number, stored):
    """The plan file, when someone has changed what is stored of a node."""
    body = json.loads(plan.to_json())
    body["nodes"][number - 1]["stored"] = stored
    return PlanDocument.from_json(json.dumps(body))
