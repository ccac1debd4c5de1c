from __future__ import annotations

import threading

from dbt_streamsql.adapter.session.host import RunGate
from tests.support import patience


def _run(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_publishing_waits_for_readers_and_keeps_new_ones_out():
    gate, order = RunGate(), []
    gate.enter()

    def publish():
        with gate.alone():
            order.append("published")

    def read():
        with gate.shared():
            order.append("read")

    waiting = gate._condition._waiters
    publisher = _run(publish)
    patience.until(lambda: len(waiting) == 1)
    reader = _run(read)
    patience.until(lambda: len(waiting) == 2)
    with gate.shared():  # who is inside may come in again
        order.append("still inside")
    gate.leave(threading.get_ident())
    patience.join(publisher, reader)
    assert order == ["still inside", "published", "read"]


def test_two_who_hold_and_want_to_publish_do_not_wait_for_each_other():
    gate, done, ready = RunGate(), [], threading.Barrier(2)

    def hold_and_publish():
        gate.enter()
        ready.wait()
        with gate.alone():
            done.append(threading.get_ident())
        gate.leave(threading.get_ident())

    threads = [_run(hold_and_publish) for _ in range(2)]
    patience.join(*threads)
    assert len(done) == 2


def test_another_thread_may_let_go_of_what_a_thread_held():
    gate = RunGate()
    thread = _run(gate.enter)
    patience.join(thread)
    gate.leave(thread.ident)
    with gate.alone():
        pass
