"""The files of a table as its version: a number made from all of them, and the files new since.

A version is the sum of one number for each file, which is made from its path, size and time. So
nothing else has to be stored: the files added since an earlier version are those whose numbers are
the difference. Files arrive in the order of their times, or nearly so; only such sets are tried.
A removed or rewritten file leaves a difference that no such set has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate

_ALL = 1 << 62
FRESH = _ALL
"""Added to the number of a version with a file so new that it may have been replaced since
by another one of the same size and time."""

_COARSE, _FINE = 2000, 100
"""Milliseconds after which another file of the same size has another time: where times may be
whole seconds, on any file system, and where they are visibly finer."""

_JUMBLED = 16
"""Files adjacent in time order that may have arrived in any order."""

_CUTS = 2000
"""Positions, from the newest file on, where such files are searched. A wrong set is found once in
ten billion lost versions: 2000 * 2^16 sets of numbers below 2^62."""


@dataclass(frozen=True)
class File:
    """A file that Spark reads: `path` as in `_metadata.file_path`, bytes, milliseconds since
    1970, and the partition that it belongs to."""

    path: str
    size: int
    modified: int
    partition: str = ""

    @cached_property
    def number(self) -> int:
        return number_of(self.path, self.size, self.modified, self.partition)

    def is_settled(self, now: int) -> bool:
        """Whether the file could not be replaced at `now` without a visible change."""
        fine = self.modified % 1000 != 0
        return self.modified <= now - (_FINE if fine else _COARSE)


@dataclass(frozen=True)
class Listing:
    """The files of a table, and `table`: a number for its other properties."""

    table: int
    files: tuple[File, ...]

    @classmethod
    def of(cls, table: int, files: Iterable[File]) -> Listing:
        return cls(table, tuple(sorted(files, key=lambda file: (file.modified, file.path))))

    @property
    def number(self) -> int | None:
        """The version; None without files."""
        return self._sums[-1] % _ALL if self.files else None

    def number_at(self, now: int) -> int | None:
        """The version when read at `now` (milliseconds since 1970)."""
        number = self.number
        if number is None or all(file.is_settled(now) for file in self.files):
            return number
        return number | FRESH

    def came(self, number: int | None) -> tuple[File, ...] | None:
        """The files added since a version, oldest first; None when the version is lost."""
        if number is None:
            return self.files
        missing = (self._sums[-1] - number) % _ALL
        if not missing:
            return ()
        return self._run(missing) or self._jumbled(missing)

    @cached_property
    def _sums(self) -> list[int]:
        """The number of the table with its first 0, 1, 2 … files."""
        return list(accumulate((file.number for file in self.files), initial=self.table))

    def _run(self, missing: int) -> tuple[File, ...] | None:
        """Adjacent files: usually the newest ones, or many that kept their old times."""
        begins: dict[int, int] = {}
        for end, total in enumerate(self._sums):
            begin = begins.get((total - missing) % _ALL)
            if begin is not None:
                return self.files[begin:end]
            begins[total % _ALL] = end
        return None

    def _jumbled(self, missing: int) -> tuple[File, ...] | None:
        """All files after one of them, and some of the few before it."""
        every = self._sums[-1]
        for cut in range(len(self.files), max(0, len(self.files) - _CUTS), -1):
            near = self.files[max(0, cut - _JUMBLED) : cut]
            found = _with_sum(near, (missing - (every - self._sums[cut])) % _ALL)
            if found is not None:
                return (*found, *self.files[cut:])
        return None


def number_of(*parts: object) -> int:
    """A number that is unique to the parts, with high probability."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") % _ALL


def _with_sum(files: Sequence[File], wanted: int) -> tuple[File, ...] | None:
    """The files, out of a few, whose numbers have that sum; None when there are none."""
    half = len(files) // 2
    first, second = (_sums(part) for part in (files[:half], files[half:]))
    known = {total: at for at, total in enumerate(first)}
    for at, total in enumerate(second):
        other = known.get((wanted - total) % _ALL)
        if other is not None:
            chosen = other | at << half
            return tuple(file for bit, file in enumerate(files) if chosen >> bit & 1)
    return None


def _sums(files: Sequence[File]) -> list[int]:
    """The sum of each set of some files; bit n of a list index stands for the nth file."""
    sums = [0]
    for file in files:
        sums += [(total + file.number) % _ALL for total in sums]
    return sums
