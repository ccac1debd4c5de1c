"""Other TTLs for a view that exists: its rows stay, and what has expired stays so until a full
refresh (docs/state_ttl.md)."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.definition.redefinition import COMPATIBLE, METADATA
from tests.support.clock import ahead
from tests.support.ttl_world import JOIN, TTL, World

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

COUNTED = "SELECT product, count(*) AS n, max(order_id) AS last FROM {s}.orders GROUP BY product"
LONG = "1 hour"


@pytest.fixture
def world(engine, schema):
    with ahead(engine) as clock:
        made = World(engine, schema, clock)
        yield made
        made.check()


def hidden(world, name):
    shown = world.sql(f"DESCRIBE {{s}}.{name}")
    return [row[0] for row in shown if row[0].startswith("__streamsql")]


def forgets(world, name):
    """Whether the view says that it is not its query."""
    return "approximate since" in world.engine.adapter_api.retention_summary(
        f"{world.schema}.{name}"
    )


@pytest.mark.parametrize(
    ("old", "new"), [(None, "1 day"), ("1 day", "2 days"), ("1 day", "1 h"), ("1 day", None)]
)
def test_another_ttl_of_a_join_computes_nothing(world, old, new):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    world.view("tracked", JOIN, old and {"joins": old})
    report = world.view("tracked", JOIN, new and {"joins": new})
    assert (report.definition, report.mode, report.jobs) == (METADATA, "noop", 0)
    assert "join-left-state of node" in report.reason
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'again')")
    assert world.rows("tracked") == [(1, "pen", "again"), (1, "pen", "sent")]


@pytest.mark.parametrize("longer", [{"joins": LONG}, None])
def test_what_expired_under_a_shorter_ttl_stays_so(world, longer):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup'), (3, 'hat')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    # Order 2 has expired: the row of both is never made.
    world.epoch("INSERT INTO {s}.shipments VALUES (2, 'late')")
    assert world.view("tracked", JOIN, longer).definition == METADATA
    world.epoch("DELETE FROM {s}.shipments WHERE order_id = 2")
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 1")
    report = world.epoch("INSERT INTO {s}.shipments VALUES (3, 'found no order')")
    assert report[f"{world.schema}.tracked"].mode != "full"
    assert world.rows("tracked") == [(1, "pen", "sent")]
    # What came since is remembered for as long as it is said now.
    world.epoch("INSERT INTO {s}.orders VALUES (4, 'wax')")
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (4, 'sent')")
    assert world.rows("tracked") == [(1, "pen", "sent"), (4, "wax", "sent")]
    assert forgets(world, "tracked")
    world.view("tracked", JOIN, longer, full_refresh=True)
    assert not forgets(world, "tracked")
    world.epoch("DELETE FROM {s}.shipments WHERE order_id = 3")
    assert world.rows("tracked") == [(4, "wax", "sent")]


def test_places_that_read_one_table_keep_what_each_has_forgotten(world):
    query = (
        "SELECT a.order_id, a.product, b.product AS status FROM {s}.orders a "
        "JOIN {s}.orders b ON a.order_id = b.order_id + 1"
    )
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.view("pairs", query, {"joins": {"a": f"{TTL} s", "b": LONG}})
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (0, 'ink'), (2, 'cup')")
    # 1 is known as b and not as a.
    assert world.rows("pairs") == [(2, "cup", "pen")]
    world.view("pairs", query, {"joins": {"a": "2 h", "b": LONG}})
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 0")
    assert world.rows("pairs") == [(2, "cup", "pen")]
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 1")
    assert world.rows("pairs") == []


def test_groups_that_are_to_be_forgotten_count_as_written_when_it_is_said(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'pen'), (3, 'cup')")
    world.view("counted", COUNTED)
    before = world.clock.time() * 1e6
    report = world.view("counted", COUNTED, {"aggregates": LONG})
    assert (report.definition, report.mode) == (COMPATIBLE, "incremental")
    assert hidden(world, "counted") == ["__streamsql_written"]
    written = [row[0] for row in world.rows("counted", "__streamsql_written")]
    assert len(written) == 2
    assert min(written) >= before
    world.epoch("INSERT INTO {s}.orders VALUES (4, 'pen')")
    assert world.rows("counted", "product, n, last") == [("cup", 1, 3), ("pen", 3, 4)]


def test_another_ttl_of_groups_counts_from_their_last_write(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (3, 'cup')")
    world.view("counted", COUNTED, {"aggregates": LONG})
    world.expire()
    report = world.view("counted", COUNTED, {"aggregates": f"{TTL} s"})
    assert (report.definition, report.mode, report.jobs) == (METADATA, "noop", 0)
    world.epoch("INSERT INTO {s}.orders VALUES (2, 'pen')")
    assert world.rows("counted", "product, n, last") == [("cup", 1, 3), ("pen", 1, 2)]
    for longer in (None, LONG):
        report = world.view("counted", COUNTED, longer and {"aggregates": longer})
        assert (report.definition, report.mode, report.jobs) == (METADATA, "noop", 0)
    world.epoch("INSERT INTO {s}.orders VALUES (5, 'pen'), (6, 'cup')")
    assert world.rows("counted", "product, n, last") == [("cup", 2, 6), ("pen", 2, 5)]
    # The row of order 1 has expired once.
    world.epoch("DELETE FROM {s}.orders WHERE order_id IN (1, 2)")
    assert world.rows("counted", "product, n, last") == [("cup", 2, 6), ("pen", 1, 5)]
    assert forgets(world, "counted")
    world.view("counted", COUNTED, full_refresh=True)
    assert hidden(world, "counted") == []


def test_a_table_that_was_made_anew_is_seen_from_its_first_row_on(world):
    for number in range(4):
        world.sql(f"INSERT INTO {{s}}.orders VALUES ({number}, 'pen')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (9, 'sent')")
    world.sql("DROP TABLE {s}.orders")
    world.table("orders", "order_id INT, product STRING")
    assert world.epoch()[f"{world.schema}.tracked"].mode == "full"
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'cap')")
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    assert world.rows("tracked") == [(1, "cap", "sent")]
