"""Which transactions a snapshot of PostgreSQL saw."""

from __future__ import annotations

import pytest

from dbt_streamsql.connectors.sources.postgres.pgoutput_rows import Snapshot

EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("text", "xid", "seen"),
    [
        ("10:20:12,15", 9, True),
        ("10:20:12,15", 12, False),
        ("10:20:12,15", 13, True),
        ("10:20:12,15", 20, False),
        ("10:20:", 19, True),
        # Changes have the lower half of the number alone.
        (f"{3 * EPOCH + 5}:{3 * EPOCH + 8}:{3 * EPOCH + 6}", 5, True),
        (f"{3 * EPOCH + 5}:{3 * EPOCH + 8}:{3 * EPOCH + 6}", 6, False),
        (f"{3 * EPOCH - 5}:{3 * EPOCH + 2}:{3 * EPOCH - 3}", EPOCH - 3, False),
        (f"{3 * EPOCH - 5}:{3 * EPOCH + 2}:{3 * EPOCH - 3}", EPOCH - 4, True),
        (f"{3 * EPOCH - 5}:{3 * EPOCH - 2}:", 1, False),
    ],
)
def test_a_transaction_is_in_the_snapshot_or_not_also_when_numbers_wrap(text, xid, seen):
    assert Snapshot.parse(text, until=100).has(xid, 100) is seen
    assert not Snapshot.parse(text, until=100).has(xid, 101)
    assert not Snapshot.of({"lsn": "0/10"}).has(xid, 100)
