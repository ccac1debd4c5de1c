"""Which branches of a wide table are written by one writer: FLIP-506's SinkReuser.

Each INSERT is its own sink at first. Sinks with the same digest become one sink over the union of
their inputs. The digest covers the table, its schema and, where each writes its own columns apart
(`reuse_sink: false`, as a Flink sink that `SupportsTargetColumnWriting`), the target columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sink:
    """One writer: its digest, the branches that it writes, and their columns."""

    digest: str
    branches: tuple[str, ...]
    targets: tuple[str, ...]


def sinks(
    table: str,
    schema: Sequence[tuple[str, str]],
    keys: Sequence[str],
    branches: Sequence[tuple[str, Sequence[str]]],
    *,
    reuse: bool,
) -> tuple[tuple[Sink, ...], tuple[Sink, ...]]:
    """The sinks before and after reuse.

    `schema` are the columns of the table with their types, `branches` name what each writes in
    addition to the `keys`.
    """
    before = []
    for name, targets in branches:
        written = (*keys, *targets)
        apart = [] if reuse else list(written)
        digest = json.dumps([table, [list(column) for column in schema], apart])
        before.append(
            Sink(hashlib.sha256(digest.encode()).hexdigest()[:8], (name,), tuple(written))
        )
    after: dict[str, Sink] = {}
    for sink in before:
        known = after.get(sink.digest)
        if known is None:
            after[sink.digest] = sink
            continue
        targets = tuple(dict.fromkeys((*known.targets, *sink.targets)))
        after[sink.digest] = Sink(sink.digest, (*known.branches, *sink.branches), targets)
    return tuple(before), tuple(after.values())


def index_paths(
    columns: Sequence[str], paths: Sequence[str], targets: Sequence[str]
) -> list[list[int]]:
    """Targets as column numbers, and fields as their numbers in them; `paths` are the table's.

    >>> index_paths(["a", "b", "c"], ["a", "b.b1", "b.b2", "c"], ["a", "b.b2"])
    [[0], [1, 1]]
    """

    def indexes(path: str) -> list[int]:
        parts = path.split(".")
        found = [list(columns).index(parts[0])]
        for at in range(1, len(parts)):
            head = ".".join(parts[:at]) + "."
            fields = dict.fromkeys(
                each.removeprefix(head).split(".")[0] for each in paths if each.startswith(head)
            )
            found.append(list(fields).index(parts[at]))
        return found

    return [indexes(path) for path in targets]


def print_sinks(title: str, table: str, found: Sequence[Sink]) -> list[str]:
    """Lines that describe what each sink writes."""
    lines = [f"{title}: {len(found)} sink{'' if len(found) == 1 else 's'}"]
    for sink in found:
        union = " + ".join(sink.branches)
        lines.append(f"  {sink.digest} {table} ({', '.join(sink.targets)}) <- {union}")
    return lines
