"""How tests wait: for as long as something moves, however slow the machine is.

Who waits gives up when nothing has moved for `QUIET_SECONDS`: the processes that are watched have
wanted no processor and no disk, and what can be seen of their work is as it was. A machine that is
slow, or busy with other things, makes a test longer and never makes it fail. Who gives up tells the
stacks of all processes that were watched.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

QUIET_SECONDS = 120.0
"""Longer than anything waits by itself: a request, a retry, a lease, a lock."""
WINDOW_SECONDS = 5.0
"""So often it is asked who has moved."""
LONGEST_SECONDS = 3600.0
"""After so long, what moves goes round in circles. Where nobody can be seen moving, only this counts."""
WORKS = 0.2
"""The part of a window in which threads run or wait for a processor, when there is work to do."""
IDLES = 0.03
"""A thread that does so for a smaller part only looks whether there is something to do."""
DUMP_SECONDS = 10.0
"""Java does not say when it has told its stacks."""

_TELL = {"java": signal.SIGQUIT, "python": signal.SIGABRT}
"""What makes a program tell its stacks."""
_SEEN = Path("/proc/self/schedstat").exists()

os.environ["PYTHONFAULTHANDLER"] = "1"  # Python that is ended by SIGABRT tells its stacks first


def _same() -> None:
    """Nothing is to be seen of the work."""


class Stuck(AssertionError):
    """Nothing moves any more."""


class Watch:
    """Looks whether somebody moves. Call `look` again and again while waiting."""

    def __init__(
        self, *watched: int | subprocess.Popen[Any], sign: Callable[[], object] = _same
    ) -> None:
        """`watched`: processes, with all that they have started; none: this one. `sign` gives
        something else whenever the work has gone on."""
        self._roots = [each if isinstance(each, int) else each.pid for each in watched]
        self._sign = sign
        self._began = self._moved = self._asked = time.monotonic()
        self._seen, self._demands = sign(), self._demand()

    def look(self) -> None:
        """Error: Stuck."""
        now = time.monotonic()
        window = now - self._asked
        if window < WINDOW_SECONDS:
            return
        seen, demands = self._sign(), self._demand()
        wanted = [used - self._demands.get(thread, 0.0) for thread, used in demands.items()]
        work = sum(each for each in wanted if each > IDLES * window)
        if seen != self._seen or work > WORKS * window or self._on_disk():
            self._moved = now
        self._asked, self._seen, self._demands = now, seen, demands
        if _SEEN and now - self._moved > QUIET_SECONDS:
            self.give_up(f"nothing has moved for {now - self._moved:.0f} s")
        if now - self._began > LONGEST_SECONDS:
            self.give_up(f"not after {now - self._began:.0f} s, though something moves")

    def give_up(self, why: str) -> NoReturn:
        raise Stuck(f"{why}\n{self.stacks()}")

    def stacks(self) -> str:
        """Those of this process. Others write theirs where they write errors; Python ends then."""
        others = [pid for pid in self._processes() if pid != os.getpid()]
        told = [f"{pid} {_command(pid)}" for pid in others]
        for pid in others:
            tells = next((number for name, number in _TELL.items() if name in _program(pid)), None)
            if tells is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, tells)
        end = time.monotonic() + DUMP_SECONDS
        while any(map(_command, others)) and time.monotonic() < end:
            time.sleep(0.05)
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            return "\n".join([*told, file.read()])

    def _processes(self) -> list[int]:
        found = list(self._roots or [os.getpid()])
        for pid in found:
            found += [child for child in _children(pid) if child not in found]
        return found

    def _demand(self) -> dict[str, float]:
        """Seconds for which each thread has run, or has waited for a processor."""
        mine, found = str(threading.get_native_id()), {}
        for pid in self._processes():
            for thread in _threads(pid):
                if thread.name != mine:
                    with suppress(OSError, ValueError):
                        ran, waited, _ = (thread / "schedstat").read_text().split()
                        found[thread.name] = (int(ran) + int(waited)) / 1e9
        return found

    def _on_disk(self) -> bool:
        for pid in self._processes():
            for thread in _threads(pid):
                with suppress(OSError, IndexError):
                    stat = (thread / "stat").read_text(errors="replace")
                    if stat.rpartition(")")[2].split()[0] == "D":
                        return True
        return False


def until(
    holds: Callable[[], T],
    *watched: int | subprocess.Popen[Any],
    sign: Callable[[], object] = _same,
    pause: float = 0.05,
) -> T:
    """What `holds` gives when it is true. `watched` and `sign` as of `Watch`. Error: Stuck."""
    watch = Watch(*watched, sign=sign)
    while not (found := holds()):
        watch.look()
        time.sleep(pause)
    return found


def join(*threads: threading.Thread) -> None:
    """Wait for threads of this process. Error: Stuck, which tells last where the thread stands."""
    watch = Watch()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
            try:
                watch.look()
            except Stuck as stuck:
                raise Stuck(f"{stuck}\n{thread.name}:\n{_stack(thread)}") from None


def wait(process: subprocess.Popen[Any], *others: int, sign: Callable[[], object] = _same) -> int:
    """The exit code of a process that others read, or that writes into files. Error: Stuck."""
    watch = Watch(process, *others, sign=sign)
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            watch.look()


def communicate(
    process: subprocess.Popen[str], given: str | None = None, *others: int
) -> tuple[str, str]:
    """What the process says until it ends, as its own method. Error: Stuck, and it ends."""
    watch = Watch(process, *others)
    while True:
        try:
            return process.communicate(given, 0.5)
        except subprocess.TimeoutExpired:
            given = None  # it has been taken over
            try:
                watch.look()
            except Stuck as stuck:
                process.kill()
                said = process.communicate()
                raise Stuck(f"{stuck}\n{''.join(text or '' for text in said)}") from None


def line(process: subprocess.Popen[str], holds: Callable[[str], object] = bool) -> str:
    """The next line of its output for which `holds`; those before it are passed over.

    What follows is left to `communicate`. Errors: Stuck, and AssertionError when it ends before.
    """
    assert process.stdout is not None
    watch, said, pipe = Watch(process), b"", process.stdout.fileno()
    while True:
        while not select.select([pipe], [], [], 0.2)[0]:
            watch.look()
        # No more than is asked for: nothing may be left in a buffer of ours.
        read = os.read(pipe, 1)
        said += read
        found = said.decode(errors="replace").splitlines(keepends=True)[-1:]
        if not read:
            raise AssertionError(f"it has ended\n{said.decode(errors='replace')}")
        if read == b"\n" and holds(found[0]):
            return found[0]


def run(
    command: Sequence[str | Path], *others: int, given: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, as texts; what it says is captured unless `options` name a file.

    `others`: processes that it waits for. `given`: its input. Error: Stuck, and it ends.
    """
    if given is not None:
        options["stdin"] = subprocess.PIPE
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(command), text=True, **{**pipes, **options}) as process:
        try:
            said, errors = communicate(process, given, *others)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(command), process.returncode, said, errors)


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "it has ended"


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    found = []
    for thread in _threads(pid):
        with suppress(OSError):
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def _command(pid: int) -> str:
    """'' when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200]
    return ""
