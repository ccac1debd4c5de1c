"""The runner takes up what changes by itself, goes on beside what fails, and ends when asked."""

from __future__ import annotations

import threading

import pytest

from dbt_streamsql.meta.store.sql import lock
from dbt_streamsql.runner.loop import Runner, Schedule
from tests.support import patience

pytestmark = pytest.mark.spark

EPOCHS = 1000
"""After so many what a test waits for does not come."""


class Told:
    """What a runner has said."""

    def __init__(self):
        self.events = []
        self._more = threading.Condition()

    def hear(self, event):
        with self._more:
            self.events.append(event)
            self._more.notify_all()

    def wait(self, holds):
        """The first event for which `holds` is true."""
        end = len(self.events) + EPOCHS

        def there():
            with self._more:
                found = [event for event in self.events if holds(event)]
                if not found:
                    self._more.wait(1)
                assert len(self.events) < end, self.events
                return found

        return patience.until(there, sign=lambda: len(self.events), pause=0)[0]

    def of(self, kind):
        return [event.told for event in self.events if event.kind == kind]


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def running(engine, told):
    """Start a runner in a thread; it is stopped when the test ends."""
    stop, threads = threading.Event(), []

    def start(**options):
        runner = Runner(engine, Schedule(0.2), told.hear, **options)
        threads.append(threading.Thread(target=runner.run, args=(stop,)))
        threads[-1].start()
        return stop

    yield start
    stop.set()
    patience.join(*threads)


@pytest.fixture
def shop(spark, engine, schema):
    """A table of orders, a view that may fail by a row, one that reads it, and one beside."""
    at = f"lake.{schema}"
    spark.sql(f"CREATE TABLE {at}.orders (id INT, amount INT)")
    spark.sql(f"INSERT INTO {at}.orders VALUES (1, 10)")
    engine.begin()
    engine.create_materialized_view(
        f"{at}.shares", f"SELECT id, 100 / amount AS s FROM {at}.orders"
    )
    engine.create_materialized_view(f"{at}.best", f"SELECT max(s) AS s FROM {at}.shares")
    engine.create_materialized_view(f"{at}.counted", f"SELECT count(*) AS n FROM {at}.orders")
    engine.publish()
    return at


def changing(table):
    return lambda event: event.kind == "tick" and table in event.told["tables"]


def test_a_change_is_taken_up_without_being_told_of(spark, engine, shop, told, running):
    running()
    told.wait(lambda event: event.kind == "tick")
    spark.sql(f"INSERT INTO {shop}.orders VALUES (2, 20)")
    tick = told.wait(changing(f"{shop}.counted")).told
    assert tick["tables"][f"{shop}.counted"]["mode"] == "incremental"
    assert engine.sql(f"SELECT * FROM {shop}.counted").first().n == 2
    assert engine.sql(f"SELECT * FROM {shop}.best").first().s == 10


def test_what_fails_waits_with_its_readers_while_the_others_go_on(
    spark, engine, shop, told, running
):
    running()
    spark.sql(f"INSERT INTO {shop}.orders VALUES (2, 0)")
    tick = told.wait(changing(f"{shop}.counted")).told
    failed = told.wait(lambda event: event.kind == "tick" and event.told["failed"]).told
    assert list(failed["failed"]) == [f"{shop}.shares"]
    assert "zero" in failed["failed"][f"{shop}.shares"]["message"].lower()
    assert failed["waiting"] == {f"{shop}.best": f"{shop}.shares"}
    assert f"{shop}.shares" not in tick["tables"]
    assert engine.sql(f"SELECT * FROM {shop}.counted").first().n == 2
    assert engine.sql(f"SELECT * FROM {shop}.best").first().s == 10

    spark.sql(f"UPDATE {shop}.orders SET amount = 5 WHERE id = 2")
    told.wait(changing(f"{shop}.best"))
    assert engine.sql(f"SELECT * FROM {shop}.best").first().s == 20
    assert engine.verify(f"{shop}.shares") == []


def test_what_failed_is_left_alone_for_a_while(spark, shop, told, running):
    running()
    spark.sql(f"INSERT INTO {shop}.orders VALUES (2, 0)")
    resting = told.wait(lambda event: event.kind == "tick" and event.told["backing_off"]).told
    assert resting["backing_off"] == [f"{shop}.shares"]
    assert resting["failed"] == {}
    assert f"{shop}.best" not in resting["tables"]


def test_only_what_is_selected_is_run(spark, engine, shop, told, running):
    class Selecting:
        def changed(self):
            return False

        def selected(self):
            return frozenset({"model.shop.counted"})

    counted = f"SELECT count(*) AS n FROM {shop}.orders"
    engine.create_materialized_view(f"{shop}.counted", counted, unique_id="model.shop.counted")
    running(project=Selecting())
    spark.sql(f"INSERT INTO {shop}.orders VALUES (2, 20)")
    tick = told.wait(changing(f"{shop}.counted")).told
    assert list(tick["tables"]) == [f"{shop}.counted"]
    assert engine.sql(f"SELECT count(*) AS n FROM {shop}.shares").first().n == 1


def test_a_project_that_goes_on_failing_is_told_once(shop, told, running):
    class Failing:
        tries = 0

        def changed(self):
            return self.tries == 0

        def register(self):
            self.tries += 1
            failed = (
                {} if self.tries > 3 else {"model.shop.broken": f"{shop}.missing is not there"}
            )
            return {"models": 1, "failed": failed}

        def selected(self):
            return None

    running(project=Failing())
    told.wait(lambda event: event.kind == "project" and not event.told["failed"])
    assert [bool(each["failed"]) for each in told.of("project")] == [True, False]


def test_an_epoch_without_changes_starts_no_spark_job(spark, shop, told, running):
    def jobs():
        return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()

    running()
    told.wait(lambda event: len(told.of("tick")) >= 2)
    before, ticks = jobs(), len(told.of("tick"))
    told.wait(lambda event: len(told.of("tick")) >= ticks + 3)
    assert jobs() == before
    assert not any(tick["tables"] for tick in told.of("tick"))


def test_of_two_runners_one_stands_by_until_the_other_ends(engine, told):
    first, second, other = threading.Event(), threading.Event(), Told()
    one = threading.Thread(target=Runner(engine, Schedule(0.2), told.hear).run, args=(first,))
    two = threading.Thread(target=Runner(engine, Schedule(0.2), other.hear).run, args=(second,))
    one.start()
    owner = told.wait(lambda event: event.kind == "leading").told["owner"]
    two.start()
    try:
        assert other.wait(lambda event: event.kind == "standby").told["leader"] == owner
        assert other.of("tick") == []
        first.set()
        other.wait(lambda event: event.kind == "tick")
        assert told.events[-1].kind == "stopping"
        assert told.events[-1].at < other.wait(lambda event: event.kind == "leading").at
    finally:
        first.set()
        second.set()
        patience.join(one, two)


def test_who_comes_to_lead_between_two_questions_says_so(engine, told):
    pace = Schedule(0.2, asks=0.5, says=0.1)
    another, stop = "host:1:another", threading.Event()
    engine.store.leaders.lead(another, 60)
    thread = threading.Thread(target=Runner(engine, pace, told.hear).run, args=(stop,))
    thread.start()
    try:
        assert told.wait(lambda event: event.kind == "standby").told["leader"] == another
        engine.store.leaders.resign(another)
        # The thread that keeps asking is told first, five times as often as the loop.
        told.wait(lambda event: event.kind == "tick")
        assert [event.kind for event in told.events][1] == "leading"
    finally:
        stop.set()
        patience.join(thread)


def test_who_waits_for_the_right_to_write_gets_it_between_two_epochs(
    engine, shop, told, monkeypatch
):
    """With no pause at all between epochs."""
    refused, fences, try_acquire = [], [], lock.FileLock.try_acquire

    def asked(self, owner):
        taken = try_acquire(self, owner)
        if not taken:
            refused.append(owner)
        return taken

    monkeypatch.setattr(lock.FileLock, "try_acquire", asked)
    another, stop = engine.store.acting_for("another"), threading.Event()
    thread = threading.Thread(target=Runner(engine, Schedule(0), told.hear).run, args=(stop,))
    asking = threading.Thread(target=lambda: fences.append(another.acquire(wait=True)))
    thread.start()
    try:
        told.wait(lambda event: event.kind == "tick")
        first = len(told.of("tick"))
        asking.start()
        patience.until(lambda: fences or len(told.of("tick")) > first + 20)
        assert fences, "it looks ten times a second, and there is a gap after each epoch"
        ticks, refused[:] = len(told.of("tick")), []
        patience.until(lambda: len(refused) > 5)
        assert len(told.of("tick")) <= ticks + 1, "no epoch while another one has the right"
    finally:
        stop.set()
        if asking.ident:
            patience.join(asking)
        for fence in fences:
            another.release(fence)
        patience.join(thread)
