"""A view that is read by one that forgets: its rows are as old as they are, however it is written."""

from __future__ import annotations

import pytest

from tests.support.clock import ahead
from tests.support.ttl_world import TTL, World

pytestmark = pytest.mark.spark

JOIN = (
    "SELECT o.order_id, o.product, s.status FROM {s}.known o "
    "JOIN {s}.shipments s ON o.order_id = s.order_id"
)


@pytest.fixture(params=["by the driver", "by Spark", "many files"])
def world(request, engine, schema, tune):
    """Orders, a view of them, and one that reads this and remembers it for some seconds."""
    if request.param == "by Spark":
        tune(engine, driver_rows=-1)
    if request.param == "many files":
        tune(engine, many_files=1)
    with ahead(engine) as clock:
        made = World(engine, schema, clock)
        made.sql("INSERT INTO {s}.orders VALUES (1, 'pen'), (2, 'cup'), (3, 'hat')")
        made.view("known", "SELECT order_id, product FROM {s}.orders WHERE order_id > 0")
        made.view("tracked", JOIN, {"joins": {"o": f"{TTL} s", "s": "1 hour"}})
        made.epoch("INSERT INTO {s}.shipments VALUES (1, 'sent')")
        yield made


def test_rows_of_a_view_that_stay_grow_old_while_others_change(world):
    world.expire()
    for number in (7, 8):
        world.epoch(f"INSERT INTO {{s}}.orders VALUES ({number}, 'new')")
    world.epoch("DELETE FROM {s}.orders WHERE order_id = 8")
    # Of equal values nothing is written to the view.
    world.epoch("UPDATE {s}.orders SET product = product WHERE order_id = 2")
    report = world.epoch("INSERT INTO {s}.shipments VALUES (2, 'late'), (3, 'late')")
    assert report[f"{world.schema}.tracked"].mode != "full"
    assert world.rows("tracked") == [(1, "pen", "sent")]
    # What goes from the view and has expired is not seen to go.
    report = world.epoch("DELETE FROM {s}.orders WHERE order_id IN (1, 2)")
    assert report[f"{world.schema}.known"].rows_deleted == 2
    assert world.rows("tracked") == [(1, "pen", "sent")]
    world.epoch("UPDATE {s}.orders SET product = 'fez' WHERE order_id = 3")
    assert world.rows("tracked") == [(1, "pen", "sent"), (3, "fez", "late")]
