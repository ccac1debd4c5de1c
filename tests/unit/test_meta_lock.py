"""One runner at a time, across real processes; a killed one holds nothing.

A service finds out that a runner was killed when it has not heard of it for a while.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, TableVersion, open_store
from dbt_streamsql.meta.client.client import MetaClient
from tests.support import patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOLD = """
import sys
from dbt_streamsql.meta import TableVersion, open_store
store = open_store(sys.argv[1])
fence = store.acquire()
barrier = store.begin(fence, {"lake.s.a": 1}).id
store.processed(fence, TableVersion(barrier, "lake.s.t", snapshot=1))
print("held", flush=True)
sys.stdin.read()
store.abort(fence, barrier)
store.release(fence)
store.close()
"""


def hold(meta_url: str) -> subprocess.Popen[str]:
    """A process that holds the lock, in the middle of a barrier, until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, meta_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert patience.line(process) == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    patience.communicate(process)


def test_a_second_process_is_refused_and_told_who_runs(meta_url: str) -> None:
    process = hold(meta_url)
    store = open_store(meta_url)
    try:
        with pytest.raises(StreamSqlError) as caught:
            store.acquire()
        assert caught.value.code == "WAREHOUSE_BUSY"
        assert caught.value.given == f"process {process.pid} on host {socket.gethostname()}"
        assert [b.state for b in store.unfinished()] == ["OPEN"], "reading needs no lock"
    finally:
        end(process)
    assert process.returncode == 0
    store.release(store.acquire())
    store.close()


def test_a_killed_process_frees_the_lock_and_its_barrier_can_be_aborted(
    meta_url: str, found_dead: Callable[[], None]
) -> None:
    process = hold(meta_url)
    process.send_signal(signal.SIGKILL)
    end(process)
    found_dead()
    store = open_store(meta_url)
    fence = store.acquire(wait=meta_url.startswith("http"))
    assert fence.token == 2
    (left,) = store.unfinished()
    assert (left.id, left.state, left.fence) == (1, "OPEN", 1)
    assert store.versions(1) == [TableVersion(1, "lake.s.t", snapshot=1)]
    store.abort(fence, left.id)
    assert store.begin(fence, {}).id == 2
    store.close()


def test_a_waiting_runner_hears_who_runs_and_goes_on_when_that_one_dies(
    meta_url: str, found_dead: Callable[[], None]
) -> None:
    process = hold(meta_url)
    heard: list[str] = []

    def on_wait(owner: str) -> None:
        if not owner:
            return  # it was let go just after it was found taken
        heard.append(owner)
        process.send_signal(signal.SIGKILL)
        end(process)
        found_dead()

    store = open_store(meta_url)
    fence = store.acquire(wait=True, on_wait=on_wait)
    assert fence.token == 2
    assert [owner.split(":")[1] for owner in heard] == [str(process.pid)]
    store.close()


def test_two_stores_of_one_process_exclude_each_other(meta_url: str) -> None:
    first, second = open_store(meta_url), open_store(meta_url)
    fence = first.acquire()
    with pytest.raises(StreamSqlError, match=f"process {os.getpid()}"):
        second.acquire()
    with pytest.raises(StreamSqlError, match="WAREHOUSE_BUSY"):
        first.acquire()
    assert first.fence() == fence, "a refused acquire takes no fence"
    waited = threading.Thread(target=lambda: second.release(second.acquire(wait=True)))
    waited.start()
    first.release(fence)
    patience.join(waited)
    assert second.fence().token == 2
    first.close()
    second.close()


def test_many_processes_may_create_the_store_at_the_same_time(meta_url: str) -> None:
    code = (
        "import sys; from dbt_streamsql.meta import open_store; sys.stdin.readline();"
        "s = open_store(sys.argv[1]); s.release(s.acquire(wait=True)); s.close()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, meta_url],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(4)
    ]
    errors = [patience.communicate(process, "go\n")[1] for process in processes]
    assert errors == ["", "", "", ""]
    store = open_store(meta_url)
    assert store.fence().token == 4
    assert store.fence().owner == ""
    store.close()


def test_a_folder_without_write_permission_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")

    def denied(path: object, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(StreamSqlError) as caught:
        store.acquire()
    monkeypatch.undo()
    assert caught.value.code == "META_UNREACHABLE"
    assert "meta.db.lock" in caught.value.given
    store.close()


def test_a_release_that_the_store_does_not_hear_of_frees_the_lock_all_the_same(
    meta_url: str, monkeypatch: pytest.MonkeyPatch, found_dead: Callable[[], None]
) -> None:
    store = open_store(meta_url)
    try:
        fence = store.acquire()

        def unreachable(*_: object, **__: object) -> None:
            raise StreamSqlError("META_UNREACHABLE", "the connection was lost")

        with monkeypatch.context() as lost:
            if isinstance(store, MetaClient):
                lost.setattr(store._http, "post", unreachable)
            else:
                lost.setattr(store.database, "write", unreachable)
            with pytest.raises(StreamSqlError):
                store.release(fence)
        found_dead()
        assert store.acquire(wait=meta_url.startswith("http")).token == fence.token + 1
    finally:
        store.close()


def test_who_has_lost_the_fence_is_not_told_what_may_be_removed(
    meta_url: str, lose_lock: Callable[[MetaStore], None]
) -> None:
    first, second = open_store(meta_url), open_store(meta_url)
    try:
        stale = first.acquire()
        barrier = first.begin(stale, {}).id
        assert first.newest_barrier(stale) == barrier
        lose_lock(first)
        fence = second.acquire()
        second.abort(fence, barrier)
        begun = second.begin(fence, {}).id
        assert second.newest_barrier(fence) == begun
        with pytest.raises(StreamSqlError) as caught:
            first.newest_barrier(stale)
        assert caught.value.code == "META_CONFLICT"
    finally:
        first.close()
        second.close()
