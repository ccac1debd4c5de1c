"""A file system of its own under the warehouse, to be filled to any byte or made read-only.

It takes the right to mount, which root has; elsewhere `unavailable` says why not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SIZE = 256 << 20
"""Bytes of a disk; none is taken before it is written."""


@cache
def unavailable() -> str:
    """Why no file system can be mounted here; '' when one can."""
    if sys.platform != "linux":
        return f"tmpfs is of Linux, this is {sys.platform}"
    if shutil.which("mount") is None:
        return "there is no command `mount`"
    with tempfile.TemporaryDirectory() as folder:
        tried = _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
        if tried.returncode:
            return f"mounting a tmpfs is refused: {tried.stderr.strip().splitlines()[0]}"
        _unmount(Path(folder))
    return ""


class Disk:
    """A tmpfs at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self._read_only = False

    @property
    def free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, left: int) -> None:
        """Take all but `left` bytes, rounded up to a page."""
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(self.free - left, 1))

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()

    def protect(self) -> None:
        """Refuse all writes to files that are opened from now on.

        The kernel does not remount a disk read-only while a file is open for writing, as the
        catalog's is: so the same disk is mounted once more over itself, and that is read-only.
        """
        _checked("--bind", str(self.folder), str(self.folder))
        _checked("-o", "remount,bind,ro", str(self.folder))
        self._read_only = True

    def release(self) -> None:
        """Accept writes again."""
        if self._read_only:
            _unmount(self.folder)
            self._read_only = False


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    """A disk for the length of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    _checked("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    disk = Disk(folder)
    try:
        yield disk
    finally:
        disk.release()
        _unmount(folder)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("mount") or "", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _checked(*arguments: str) -> None:
    done = _mount(*arguments)
    assert done.returncode == 0, done.stderr


def _unmount(folder: Path) -> None:
    # Lazily: Spark's sessions keep the catalog's file open.
    subprocess.run([shutil.which("umount") or "", "-l", str(folder)], check=True)
