"""The messages of PostgreSQL's logical replication (plugin `pgoutput`, protocol 1) as rows.

Source: PostgreSQL documentation, Logical Replication Message Formats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

UNCHANGED = object()
"""A long value that an update did not change: PostgreSQL does not send it."""

SINCE_2000 = 946_684_800_000_000
"""Microseconds from 1970 to PostgreSQL's epoch."""

Values = tuple[object, ...]
"""Texts, None, or UNCHANGED, in the order of the relation's columns."""


@dataclass(frozen=True)
class Relation:
    """A table as it was when its rows changed."""

    oid: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """`op` is c, u, d or t (truncate: no values). `old` has only the key, or all columns."""

    op: str
    relation: Relation
    new: Values | None = None
    old: Values | None = None
    is_old_whole: bool = False


@dataclass
class Transaction:
    """Changes that became visible together, at the log position `end`; `time` is in microseconds
    since 1970."""

    xid: int
    time: int
    end: int = 0
    changes: list[Change] = field(default_factory=list)


def transactions(messages: Iterable[bytes], oid: int) -> Iterator[Transaction]:
    """The committed transactions, in order, with the changes of one table."""
    relations: dict[int, Relation] = {}
    now: Transaction | None = None
    for message in messages:
        kind, reader = message[:1], _Reader(message, 1)
        if kind == b"B":
            _, stamp, xid = reader.take(">qqI")
            now = Transaction(xid, stamp + SINCE_2000)
        elif kind == b"R":
            found = _relation(reader)
            relations[found.oid] = found
        elif kind == b"C" and now is not None:
            _, _, now.end, _ = reader.take(">bqqq")
            yield now
            now = None
        elif kind in _CHANGES and now is not None:
            now.changes.extend(_CHANGES[kind](reader, relations, oid))


def end_of(commit: bytes) -> int:
    """The log position after a commit, from its message."""
    return int(struct.unpack_from(">q", commit, 10)[0])


def lsn_of(text: str) -> int:
    """A log position, which PostgreSQL writes as two hexadecimal numbers.

    >>> lsn_of("1/10")
    4294967312
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """
    >>> lsn_text(4294967312)
    '1/10'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass
class _Reader:
    data: bytes
    at: int

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode()
        self.at = end + 1
        return found

    def letter(self) -> str:
        self.at += 1
        return chr(self.data[self.at - 1])

    def values(self) -> Values:
        found: list[object] = []
        for _ in range(self.take(">H")[0]):
            kind = self.letter()
            if kind == "t":
                (length,) = self.take(">I")
                found.append(self.data[self.at : self.at + length].decode())
                self.at += length
            else:
                found.append(None if kind == "n" else UNCHANGED)
        return tuple(found)


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.take(">I")
    reader.text()
    reader.text()
    reader.letter()
    columns = []
    for _ in range(reader.take(">H")[0]):
        reader.letter()
        columns.append(reader.text())
        reader.take(">Ii")
    return Relation(oid, tuple(columns))


def _insert(reader: _Reader, relations: dict[int, Relation], oid: int) -> Iterator[Change]:
    (of,) = reader.take(">I")
    if of == oid:
        reader.letter()
        yield Change("c", relations[of], reader.values())


def _update(reader: _Reader, relations: dict[int, Relation], oid: int) -> Iterator[Change]:
    (of,) = reader.take(">I")
    if of == oid:
        kind, old = reader.letter(), None
        if kind in "KO":
            old = reader.values()
            reader.letter()
        yield Change("u", relations[of], reader.values(), old, kind == "O")


def _delete(reader: _Reader, relations: dict[int, Relation], oid: int) -> Iterator[Change]:
    (of,) = reader.take(">I")
    if of == oid:
        whole = reader.letter() == "O"
        yield Change("d", relations[of], None, reader.values(), whole)


def _truncate(reader: _Reader, relations: dict[int, Relation], oid: int) -> Iterator[Change]:
    count, _ = reader.take(">Ib")
    if oid in reader.take(f">{count}I"):
        yield Change("t", relations[oid])


_CHANGES: dict[bytes, Callable[[_Reader, dict[int, Relation], int], Iterator[Change]]] = {
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
}
