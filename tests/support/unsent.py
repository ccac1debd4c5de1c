"""A table of a database in plain Python, and the records that Debezium would write of it."""

from __future__ import annotations

import base64
import decimal
import json
import random
from dataclasses import dataclass, field

WORD = "__debezium_unavailable_value"
COLUMNS = [
    ("id", "int"),
    ("n", "bigint"),
    ("body", "string"),
    ("raw", "binary"),
    ("tags", "array<string>"),
    ("num", "decimal(20,2)"),
    ("doc", "string"),
]
LONG = ("body", "raw", "tags", "num", "doc")
"""What may be so long that an update does not send it again."""

_TYPES = {
    "id": {"type": "int32"},
    "n": {"type": "int64"},
    "body": {"type": "string"},
    "raw": {"type": "bytes"},
    "tags": {"type": "array"},
    "num": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    },
    "doc": {"type": "string", "name": "io.debezium.data.Json"},
}
_RAW_WORD = base64.b64encode(WORD.encode()).decode()


@dataclass
class World:
    """`rows` are those of the table by id, `truth` what a row was after each change, by (id, n):
    None where it was deleted. `n` numbers the changes. `plain`: values are never NULL."""

    chance: random.Random
    with_schema: bool
    rows: dict[int, dict] = field(default_factory=dict)
    truth: dict[tuple[int, int], dict | None] = field(default_factory=dict)
    n: int = 0

    def value(self, name):
        chance = self.chance
        if chance.random() < 0.15:
            return None
        number = chance.randrange(10**6)
        return {
            "body": f"text {number}",
            "raw": f"bytes {number}".encode(),
            "tags": [f"t{number}", "x"],
            "num": decimal.Decimal(number).scaleb(-2) - 1000,
            "doc": json.dumps({"k": number}),
        }[name]

    def change(self):
        """The records of one random change."""
        chance = self.chance
        key = chance.randrange(6)
        if key not in self.rows:
            return [self.insert(key)]
        drawn = chance.random()
        if drawn < 0.12:
            return [self.delete(key)]
        if drawn < 0.2:
            other = chance.randrange(6, 9)
            if other not in self.rows:
                return self.move(key, other)
        return [self.update(key)]

    def insert(self, key):
        self.n += 1
        return self._now(key, {name: self.value(name) for name in LONG}, "c", ())

    def update(self, key, unsent=None):
        """An update of some long columns, of which most others are not sent."""
        self.n += 1
        row = dict(self.rows[key])
        drawn = [name for name in LONG if self.chance.random() < 0.3]
        changed = drawn if unsent is None else [name for name in LONG if name not in unsent]
        row |= {name: self.value(name) for name in changed}
        kept = [name for name in LONG if name not in changed and row[name] is not None]
        left = [name for name in kept if unsent is not None or self.chance.random() < 0.8]
        return self._now(key, row, "u", left)

    def delete(self, key):
        self.n += 1
        del self.rows[key]
        self.truth[key, self.n] = None
        return self._around({"id": key, "n": self.n}, None, "d")

    def move(self, key, other, unsent=()):
        """An update of the key: a delete and a new row."""
        row = self.rows[key]
        gone = self.delete(key)
        self.n += 1
        left = [name for name in unsent if row[name] is not None]
        return [gone, self._now(other, dict(row), "c", left)]

    def _now(self, key, row, op, unsent):
        row = {**row, "id": key, "n": self.n}
        self.rows[key] = self.truth[key, self.n] = row
        return self._around(None, self.sent(row, unsent), op)

    def sent(self, row, unsent):
        """A row as a record has it."""
        found = {}
        for name, value in row.items():
            if name in unsent:
                found[name] = self._word(name)
            elif value is None or name in ("id", "n", "body", "doc", "tags"):
                found[name] = value
            elif name == "raw":
                found[name] = base64.b64encode(value).decode()
            else:
                found[name] = self._number(value)
        return found

    def _word(self, name):
        if name == "tags":
            return [WORD]
        is_bytes = name == "raw" or (name == "num" and self.with_schema)
        return _RAW_WORD if is_bytes else WORD

    def _number(self, value):
        if not self.with_schema:
            return str(value)
        whole = int(value.scaleb(2))
        size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
        return base64.b64encode(whole.to_bytes(size, "big", signed=True)).decode()

    def _around(self, before, after, op):
        payload = {"op": op, "before": before, "after": after, "ts_ms": 1}
        payload["source"] = {"lsn": self.n}
        if not self.with_schema:
            return json.dumps(payload)
        fields = [{"field": name, "optional": True, **said} for name, said in _TYPES.items()]
        around = [{"field": name, "fields": fields} for name in ("before", "after")]
        return json.dumps({"schema": {"fields": around}, "payload": payload})


def of_query(row):
    """A row as the query of the tests has it."""
    body, raw = row["body"], row["raw"]
    return (
        row["id"],
        row["n"],
        body,
        raw,
        tuple(row["tags"]) if row["tags"] is not None else None,
        row["num"],
        row["doc"],
        None if body is None else f"{row['id']}/{body.upper()}",
        None if raw is None else len(raw),
    )


QUERY = (
    "SELECT id, n, body, raw, tags, num, doc, concat(id, '/', upper(body)) AS path, "
    "length(raw) AS size, _op, _lsn FROM (SELECT * FROM {stream}) WHERE _op <> 't'"
)
