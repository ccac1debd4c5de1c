"""A view that forgets, on Spark: what has expired joins no more, is taken back no more, and a group
that was not written for its TTL starts anew (FLIP-292; docs/state_ttl.md)."""

from __future__ import annotations

import json

import pytest

from dbt_streamsql import StreamSqlError
from dbt_streamsql.plan.document import PlanDocument, differences
from dbt_streamsql.runtime.core.row_expiry import Expiry
from tests.support.clock import ahead
from tests.support.steps import Died, observing
from tests.support.ttl_world import JOIN, TTL, World

pytestmark = [pytest.mark.spark, pytest.mark.hunts]


@pytest.fixture
def world(engine, schema):
    with ahead(engine) as clock:
        made = World(engine, schema, clock)
        yield made
        made.check()


def test_an_expired_partner_joins_no_more_and_the_other_side_may_wait_longer(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup')")
    world.view("tracked", JOIN, {"joins": {"o": "1 hour", "shipments": f"{TTL} s"}})
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent'), (3, 'sent')")
    assert world.rows("tracked") == [(1, "pen", "sent")]
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (3, 'hat')")
    assert world.rows("tracked") == [(1, "pen", "sent")]
    world.epoch("INSERT INTO {s}.shipments VALUES (2, 'sent'), (3, 'late')")
    assert world.rows("tracked") == [
        (1, "pen", "sent"),
        (2, "cup", "sent"),
        (3, "hat", "late"),
    ]


def test_a_late_retraction_of_what_has_expired_is_ignored(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent'), (2, 'sent')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    world.epoch("DELETE FROM {s}.shipments WHERE order_id = 1")
    assert world.rows("tracked") == [(1, "pen", "sent"), (2, "cup", "sent")]
    world.epoch("UPDATE {s}.shipments SET status = 'back' WHERE order_id = 2")
    # The order has expired too: the new shipment finds none.
    assert world.rows("tracked") == [(1, "pen", "sent"), (2, "cup", "sent")]


def test_what_comes_is_seen_however_late_its_epoch_is(world):
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    world.expire()
    world.epoch()
    assert world.rows("tracked") == [(1, "pen", "sent")]
    world.epoch(
        "INSERT INTO {s}.orders VALUES (2, 'cup')", "INSERT INTO {s}.shipments VALUES (2, 'sent')"
    )
    world.epoch("UPDATE {s}.orders SET product = 'hat' WHERE order_id = 2")
    assert world.rows("tracked") == [(1, "pen", "sent"), (2, "hat", "sent")]


def test_what_is_written_again_is_remembered_anew(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    world.epoch("UPDATE {s}.orders SET product = product")
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    assert world.rows("tracked") == [(1, "pen", "sent")]


def test_a_group_that_was_not_written_for_its_ttl_starts_anew(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'pen'), (3, 'cup')")
    query = "SELECT product, count(*) AS n, max(order_id) AS last FROM {s}.orders GROUP BY product"
    world.view("counted", query, {"aggregates": f"{TTL} s"})
    world.epoch("INSERT INTO {s}.orders VALUES (4, 'pen')")
    assert world.rows("counted", "product, n, last") == [("cup", 1, 3), ("pen", 3, 4)]
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (0, 'pen')")
    assert world.rows("counted", "product, n, last") == [("cup", 1, 3), ("pen", 1, 0)]
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 3")
    assert world.rows("counted", "product, n, last") == [("cup", 1, 3), ("pen", 1, 0)]


def test_the_first_of_its_kind_may_come_again_after_the_ttl(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    query = (
        "SELECT order_id, product FROM (SELECT *, row_number() OVER (PARTITION BY order_id "
        "ORDER BY product) AS rn FROM {s}.orders) WHERE rn = 1"
    )
    world.view("first", query, {"deduplicate": f"{TTL} s"})
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'wax')")
    assert world.rows("first", "order_id, product") == [(1, "pen")]
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'zip')")
    assert world.rows("first", "order_id, product") == [(1, "zip")]


def test_a_hint_says_how_long_the_inputs_of_a_join_are_kept(world):
    query = JOIN.replace("SELECT", f"SELECT /*+ STATE_TTL('o' = '1 d', 's' = '{TTL} s') */", 1)
    world.view("tracked", query)
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'pen')")
    assert world.rows("tracked") == []


def test_nothing_expires_by_itself_and_a_full_refresh_is_the_query(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    assert world.epoch()[f"{world.schema}.tracked"].mode == "noop"
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'again')")
    assert world.rows("tracked") == [(1, "pen", "sent")]
    assert world.verified("tracked") == []
    world.view("tracked", JOIN, {"joins": f"{TTL} s"}, full_refresh=True)
    assert world.verified("tracked") == []
    assert world.rows("tracked") == [(1, "pen", "again"), (1, "pen", "sent")]


VERIFIED = [
    (JOIN, {"joins": f"{TTL} s"}),
    (
        "SELECT product, count(*) AS n, max(order_id) AS last FROM {s}.orders GROUP BY product",
        {"aggregates": f"{TTL} s"},
    ),
    (
        "SELECT product, count(DISTINCT order_id) AS n FROM {s}.orders GROUP BY product",
        {"aggregates": f"{TTL} s"},
    ),
]


@pytest.mark.parametrize(("query", "ttl"), VERIFIED)
def test_verify_finds_what_an_epoch_did_with_rows_that_had_expired(world, monkeypatch, query, ttl):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent'), (2, 'sent')")
    world.view("right", query, ttl)
    world.view("wrong", query, ttl)
    world.expire()
    world.epoch("INSERT INTO {s}.orders VALUES (7, 'pen')")
    assert world.verified("right") == []
    world.expire()
    with monkeypatch.context() as broken:
        broken.setattr(Expiry, "expired", lambda *_: 0)
        broken.setattr(Expiry, "of_groups", lambda ages, ttl: (0, ages.written))
        world.epoch(
            "INSERT INTO {s}.orders VALUES (8, 'pen')",
            "DELETE FROM {s}.shipments WHERE order_id = 1",
        )
    assert {row["_side"] for row in world.verified("wrong")} <= {"missing", "surplus"}
    assert world.verified("wrong")
    world.views.clear()


def test_verify_says_why_it_cannot_tell_what_a_view_that_forgot_should_be(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    world.view("tracked", JOIN, {"joins": f"{TTL} s"})
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'late')")
    world.view("tracked", JOIN, {"joins": "1 h"})
    with pytest.raises(
        StreamSqlError, match="its definition differs from the one that made its rows"
    ):
        world.verified("tracked")
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'later')")
    assert world.verified("tracked") == []
    world.sql(
        "CALL lake.system.expire_snapshots(table => '{s}.shipments', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    with pytest.raises(
        StreamSqlError, match="shipments that it read before the last barrier is gone"
    ):
        world.verified("tracked")
    world.views.clear()


@pytest.mark.parametrize(
    ("query", "ttl", "words"),
    [
        (JOIN, {"joins": {"x": "1 d"}, "rank": "1 d"}, ["no join reads x", "no rank"]),
        (JOIN, {"by_id": {9: "1 d"}}, ["node 9 has no state"]),
        (
            JOIN.replace("JOIN", "LEFT JOIN"),
            "1 d",
            ["join-right-state", "seem to have none"],
        ),
        ("SELECT count(*) AS n FROM {s}.orders", "1 century", ["1 century"]),
        ("SELECT now() AS t, rand() AS r FROM {s}.orders", "1 d", ["refreshed in full"]),
    ],
)
def test_what_cannot_be_forgotten_is_refused_with_all_that_is_wrong(world, query, ttl, words):
    with pytest.raises(StreamSqlError) as found:
        world.view("wrong", query, ttl)
    assert found.value.code in ("STATE_TTL_INVALID", "CONFIG_INVALID")
    for word in words:
        assert word in str(found.value)
    assert not world.sql("SHOW TABLES IN {s} LIKE 'wrong'")


def test_a_plan_file_shows_every_state_and_its_ttls_may_be_changed(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    query = JOIN.format(s=world.schema)
    name = f"{world.schema}.tracked"
    plan = world.engine.compile(query, into=name, state_ttl="7 days").document
    text = plan.to_json()
    assert PlanDocument.from_json(text) == plan
    join = next(node for node in json.loads(text)["nodes"] if node["type"] == "join_1")
    assert join["state"] == [
        {"index": 0, "ttl": "604800000 ms", "name": "join-left-state"},
        {"index": 1, "ttl": "604800000 ms", "name": "join-right-state"},
    ]
    assert join["schema"][0] == {"name": "order_id", "type": "int"}
    edited = PlanDocument.from_json(text.replace('"604800000 ms"', f'"{int(TTL * 1000)} ms"', 1))
    kept = "join-left-state is kept for 5 minutes, not 7 days"
    assert differences(plan, edited) == [f"node {join['id']} (inner join of 2): {kept}"]
    world.engine.create_materialized_view(name, query, plan=edited)
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    assert world.rows("tracked") == []


def test_compiling_does_not_depend_on_what_an_earlier_definition_has_forgotten(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    query, name = JOIN.format(s=world.schema), f"lake.{world.schema.rpartition('.')[2]}.tracked"
    fresh = world.engine.compile(query, into=name)
    world.engine.create_materialized_view(name, query, state_ttl=f"{TTL} s")
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    assert world.engine.create_materialized_view(name, query).mode != "full"
    assert world.engine.compile(query, into=name) == fresh


def test_a_plan_file_of_another_query_is_refused_with_the_difference(world):
    name = f"{world.schema}.tracked"
    query = JOIN.format(s=world.schema)
    plan = world.engine.compile(query, into=name, state_ttl="7 days").document
    with pytest.raises(StreamSqlError) as found:
        world.engine.create_materialized_view(name, query + " AND s.status = 'sent'", plan=plan)
    assert found.value.code == "PLAN_MISMATCH"
    assert "sent" in str(found.value)
    assert not world.sql("SHOW TABLES IN {s} LIKE 'tracked'")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "version 1 or 2"),
        ({"nodes": [{"id": 0}]}, "nodes/0"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_no_plan_file_is_refused(world, change, words):
    plan = world.engine.compile(JOIN.format(s=world.schema)).document
    with pytest.raises(StreamSqlError) as found:
        PlanDocument.from_json(json.dumps(json.loads(plan.to_json()) | change))
    assert found.value.code == "PLAN_MISMATCH"
    assert words in str(found.value)


def test_a_plan_file_from_before_there_were_ttls_leaves_them_to_the_config(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    query = JOIN.format(s=world.schema)
    name = f"{world.schema}.tracked"
    body = json.loads(world.engine.compile(query, into=name).document.to_json())
    for node in body["nodes"]:
        del node["state"]
    old = PlanDocument.from_json(json.dumps(body | {"version": 1}))
    world.engine.create_materialized_view(name, query, plan=old, state_ttl=f"{TTL} s")
    world.expire()
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
    assert world.rows("tracked") == []


@pytest.mark.parametrize(
    ("step", "moment", "joined"),
    [
        ("branch.write", "after", False),
        ("table.processed", "after", False),
        ("barrier.precommit", "before", False),
        ("barrier.precommit", "after", True),
        ("publish.table", "after", True),
    ],
)
def test_an_epoch_that_died_is_run_again_by_one_clock(world, step, moment, joined):
    """Published by whoever comes next it has what its own clock said, run again what the new one
    says: of what expires in between, all or nothing."""
    query = JOIN.replace("SELECT", "SELECT /*+ STATE_TTL('s' = '1 h') */", 1)
    world.view("tracked", query, {"joins": {"o": f"{TTL} s"}})
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent'), (2, 'sent')")
    dead = []

    def die(at, when):
        if dead or (at, when) == (step, moment):
            dead.append(at)
            raise Died

    with observing(die), pytest.raises(Died):
        world.engine.advance()
    world.expire()
    world.engine.advance()
    both = [(1, "pen", "sent"), (2, "cup", "sent")]
    assert world.rows("tracked") == (both if joined else [])
    # Order 1 has expired by now, whichever clock counted then.
    world.epoch("INSERT INTO {s}.shipments VALUES (1, 'late')")
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 1")
    assert world.rows("tracked") == (both if joined else [])


def test_a_view_whose_source_was_set_back_is_computed_anew(world):
    world.sql("INSERT INTO {s}.orders VALUES (1, 'pen')")
    first = world.sql("SELECT snapshot_id FROM {s}.orders.snapshots")[0][0]
    world.sql("INSERT INTO {s}.orders VALUES (2, 'cup')")
    world.sql("INSERT INTO {s}.shipments VALUES (1, 'sent'), (2, 'sent')")
    world.view("tracked", JOIN, {"joins": "1 hour"})
    catalog, schema = world.schema.split(".")
    world.sql("DELETE FROM {s}.orders WHERE order_id = 1")
    world.epoch()
    world.sql(f"CALL {catalog}.system.set_current_snapshot('{schema}.orders', {first})")
    told = world.epoch()[f"{world.schema}.tracked"]
    assert (told.mode, "the ages of the rows of" in told.reason) == ("full", True)
    assert world.rows("tracked") == [(1, "pen", "sent")]
    assert world.engine.verify(f"{world.schema}.tracked") == []


def test_a_table_without_ages_is_read_through_a_view(world):
    world.sql("CREATE TABLE {s}.old (order_id INT, status STRING)")
    world.sql("ALTER TABLE {s}.old SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    assert ("format-version", "2") in world.sql("SHOW TBLPROPERTIES {s}.old")
    world.sql("INSERT INTO {s}.old VALUES (1, 'sent'), (2, 'sent')")
    joined = JOIN.replace("{s}.shipments", "{s}.old")
    with pytest.raises(StreamSqlError, match="does not record when its rows were written") as no:
        world.view("tracked", joined, {"joins": f"{TTL} s"})
    assert f"select * from {world.schema}.old" in no.value.hint

    world.view("kept", "SELECT * FROM {s}.old")
    world.view("tracked", joined.replace("{s}.old", "{s}.kept"), {"joins": f"{TTL} s"})
    world.expire()
    # Both write the row of order 1 into a new file.
    world.epoch("UPDATE {s}.old SET status = 'back' WHERE order_id = 2")
    world.epoch("INSERT INTO {s}.old VALUES (3, 'sent')")
    old = f"{world.schema}.old".removeprefix("lake.")
    world.epoch(
        f"CALL lake.system.rewrite_data_files(table => '{old}', "
        "options => map('rewrite-all', 'true'))"
    )
    world.epoch("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup'), (3, 'hat')")
    assert world.rows("tracked") == [(2, "cup", "back"), (3, "hat", "sent")]
    world.epoch("DELETE FROM {s}.old WHERE order_id = 2")
    assert world.rows("tracked") == [(3, "hat", "sent")]
