"""Planted bugs of streaming tables.

id -> symbol, old, new, what is wrong, tests.
"""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

STREAMS: dict[str, Planted] = {
    "stream-revives-deleted": (
        ("Upsert._won_here", "Winners"),
        "table.find(self.stream.key, newest.data)",
        "tables[0].find(self.stream.key, newest.data)",
        "an older record brings back a key that was deleted",
        "newest_record_of_each_key",
    ),
    "stream-older-wins": (
        ("Upsert._won_here", "Winners"),
        "pc.greater(ours.column(SEQUENCE).cast(stored.type), stored)",
        "pc.less(ours.column(SEQUENCE).cast(stored.type), stored)",
        "older records replace newer ones",
        "newest_record_of_each_key",
    ),
    "stream-stayed-is-deleted": (
        ("Upsert.deleted", "Winners"),
        Text("WHERE coalesce({_STAYS} < {SEQUENCE}, true) "),
        "WHERE true ",
        "a key that was deleted once counts as deleted",
        "keeps_the_keys_that_are_deleted",
    ),
    "texts-without-order": (
        "_sorted_keys",
        "sorted(set(keys.cast(pa.binary()).to_pylist()))",
        "list(set(keys.cast(pa.binary()).to_pylist()))",
        "row groups are left out by texts in no order",
        "places_are_those",
    ),
}
