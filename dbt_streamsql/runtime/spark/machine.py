"""What the machine, or the container, gives to Spark's driver."""

from __future__ import annotations

import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
"""Where Linux shows the limits of a container."""
_GIB = 1 << 30


def cores(group: Path = _GROUP) -> int:
    """The processors that this process may use at the same time; Java counts them likewise."""
    found = os.cpu_count() or 2
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    quota, _, period = _read(group / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        found = min(found, max(1, math.ceil(int(quota) / int(period))))
    return found


def driver_memory(group: Path = _GROUP) -> int:
    """Bytes: a quarter of the memory, between 1 and 8 GiB."""
    total = 4 * _GIB
    if hasattr(os, "sysconf"):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(group / "memory.max")
    if limit.isdigit():
        total = min(total, int(limit))
    return max(_GIB, min(8 * _GIB, total // 4))


def _read(file: Path) -> str:
    return file.read_text().strip() if file.is_file() else ""
