"""A value that an update of Debezium's did not send is the one that the table by key has."""

from __future__ import annotations

import json
import random

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.support.steps import dying
from tests.support.unsent import COLUMNS, LONG, QUERY, WORD, World, of_query

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

STREAM = "lake.raw.docs"


class Docs:
    """A table by key over a folder of records."""

    def __init__(self, engine, schema, folder, query=QUERY, **config):
        folder.mkdir()
        self.engine, self.folder, self.files = engine, folder, 0
        self.table = f"lake.{schema}.docs"
        self.query, self.config = query.format(stream=STREAM), config

    def create(self, **more):
        keyed = {
            "key": ["id"],
            "sequence_by": "_lsn",
            "delete_when": "_op = 'd'",
            "leave_out": ["_op", "_lsn"],
        }
        options = {"path": str(self.folder), "decimal_handling": "string"}
        columns = [list(each) for each in COLUMNS]
        source = {"connector": "files", "format": "debezium", "columns": columns}
        return self.engine.create_streaming_table(
            self.table,
            self.query,
            stream=STREAM,
            source={**source, "options": options},
            **{**keyed, **self.config, **more},
        )

    def put(self, *records):
        self.files += 1
        text = "".join(each + "\n" for each in records)
        (self.folder / f"{self.files:04}.json").write_text(text)

    def rows(self, names="*"):
        found = self.engine.sql(f"SELECT {names} FROM {self.table}").collect()
        plain = [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in found]
        return sorted((tuple(map(_plain, row)) for row in plain), key=repr)

    def refused(self):
        return self.engine.sql(f"SELECT raw, reason FROM {self.table}__quarantine").collect()


def _plain(value):
    return bytes(value) if isinstance(value, bytearray) else value


def payload(text):
    record = json.loads(text)
    return record.get("payload", record)


def row_of(**values):
    return {"id": 1, "n": 1, **dict.fromkeys(LONG), **values}


def change(after, op="u", before=None):
    n = (after or before or {}).get("n")
    source = {"lsn": n}
    return json.dumps({"op": op, "before": before, "after": after, "ts_ms": 1, "source": source})


@pytest.mark.parametrize("with_schema", [True, False])
def test_the_table_is_that_of_the_database_whatever_was_sent_again(
    engine, schema, tmp_path, with_schema
):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    world = World(random.Random(seed), with_schema)
    docs = Docs(engine, schema, tmp_path / "in")
    docs.put(*(each for _ in range(25) for each in world.change()))
    docs.create()
    for barrier in range(3):
        assert docs.rows() == sorted(map(of_query, world.rows.values()), key=repr)
        changes = [each for _ in range((25, 3)[barrier % 2]) for each in world.change()]
        half = len(changes) // 2
        docs.put(*changes[:half])
        docs.put(*changes[half:])
        if barrier == 1:
            with dying("barrier.precommit"):
                engine.advance()
            engine.abort()
        engine.advance()
    assert docs.rows() == sorted(map(of_query, world.rows.values()), key=repr)
    assert engine.advance().tables[docs.table].mode == "noop"
    once = docs.rows()
    docs.create(full_refresh=True)
    assert docs.rows() == once


def test_no_row_is_a_mixture_of_two_whatever_is_put_aside(engine, schema, tmp_path):
    """Each row is one that the database had. Where it is not the newest, a newer record of its
    key is in the quarantine."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    world = World(chance, False)
    docs = Docs(engine, schema, tmp_path / "in", on_error="quarantine")
    for key in range(3):
        world.insert(key)  # from before the stream begins

    def spoiled(text):
        """A record that cannot be read, though its key can."""
        record = json.loads(text)
        if record["op"] == "u" and chance.random() < 0.15:
            record["after"]["num"] = "not a number"
        return json.dumps(record)

    def some(count):
        changes = [each for _ in range(count) for each in world.change()]
        held = [key for key in world.rows if key < 6]
        target = chance.randrange(10, 14)
        if held and target not in world.rows:
            changes += world.move(chance.choice(held), target, unsent=("body",))
            changes.append(world.update(target, unsent=("body", "raw")))
        return [spoiled(each) for each in changes]

    docs.put(*some(25))
    docs.create()
    aside = []
    for barrier in range(4):
        rows = docs.rows()
        aside = [payload(each.raw) for each in docs.refused()]
        newest = {}
        for each in aside:
            row = each["after"] or each["before"]
            newest[row["id"]] = max(newest.get(row["id"], 0), row["n"])
        for row in rows:
            assert row == of_query(world.truth[row[0], row[1]])
        there = {row[0]: row[1] for row in rows}
        for key in {*there, *world.rows}:
            true = world.rows[key]["n"] if key in world.rows else None
            if there.get(key) != true and key in {k for k, n in world.truth if n > 3}:
                assert newest.get(key, 0) > there.get(key, 0), (barrier, key)
        docs.put(*some((4, 20)[barrier % 2]))
        engine.advance()
    assert aside


def test_a_key_that_is_not_there_has_no_value_to_keep(engine, schema, tmp_path):
    docs = Docs(engine, schema, tmp_path / "in")
    docs.put(change(row_of(body="a"), "c"))
    docs.create()
    docs.put(change(row_of(id=2, n=2, body=WORD)))
    with pytest.raises(StreamSqlError) as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"
    told = str(caught.value)
    assert (
        "column body: the update did not change it, and Debezium does not know its value" in told
    )
    assert "0002.json:1" in told
    assert docs.rows("id, n, body") == [(1, 1, "a")]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_value_is_not_kept_across_a_delete(engine, schema, tmp_path, at_once):
    docs = Docs(engine, schema, tmp_path / "in", on_error="quarantine")
    changes = [
        change(row_of(body="a"), "c"),
        change(None, "d", {"id": 1, "n": 2}),
        change(row_of(n=3, body=WORD)),
        change(row_of(n=4, body="b"), "c"),
        change(row_of(n=5, body=WORD)),
    ]
    if at_once:
        docs.put(*changes[:3])
        docs.create()
        docs.put(*changes[3:])
        engine.advance()
    else:
        docs.put(changes[0])
        docs.create()
        for each in changes[1:]:
            docs.put(each)
            engine.advance()
    assert docs.rows("id, n, body") == [(1, 5, "b")]
    (bad,) = docs.refused()
    assert payload(bad.raw)["after"]["n"] == 3


def test_a_column_that_needs_more_than_what_was_left_as_it_was_is_not_guessed(
    engine, schema, tmp_path
):
    query = "SELECT id, n, concat(body, doc) AS both, _op, _lsn FROM {stream}"
    docs = Docs(engine, schema, tmp_path / "in", query, on_error="quarantine")
    docs.put(change(row_of(body="a", doc="1"), "c"))
    docs.create()
    docs.put(
        change(row_of(n=2, body=WORD, doc="2")),
        change(row_of(n=3, body=WORD, doc=WORD)),
    )
    engine.advance()
    # What the first of them made is not known, so nobody knows what the second left as it was.
    assert docs.rows() == [(1, 1, "a1")]
    assert len(docs.refused()) == 2
    docs.put(change(row_of(n=4, body="b", doc="4")))
    docs.put(change(row_of(n=5, body=WORD, doc=WORD)))
    engine.advance()
    assert docs.rows() == [(1, 5, "b4")]


def test_a_record_that_was_put_aside_may_have_changed_the_value(engine, schema, tmp_path):
    docs = Docs(engine, schema, tmp_path / "in", on_error="quarantine")
    docs.put(change(row_of(body="a"), "c"), change(row_of(id=2, body="a"), "c"))
    docs.create()
    docs.put(change(row_of(n=2, body="b", num="?")))
    engine.advance()
    docs.put(change(row_of(n=3, body=WORD)), change(row_of(id=2, n=3, body=WORD)))
    engine.advance()
    assert docs.rows("id, n, body") == [(1, 1, "a"), (2, 3, "a")]
    assert len(docs.refused()) == 2
    docs.put(change(row_of(n=4, body="c")))
    docs.put(change(row_of(n=5, body=WORD)))
    engine.advance()
    assert docs.rows("id, n, body") == [(1, 5, "c"), (2, 3, "a")]


@pytest.mark.parametrize(
    ("query", "config", "why"),
    [
        ("SELECT id, n, body, _op, _lsn FROM {stream} WHERE n > 0", {}, "reads n"),
        ("SELECT id, n, body, _op, _lsn FROM {stream} WHERE _op <> 'c'", {}, "leaves changes out"),
        ("SELECT id + 0 AS id, n, body, _op, _lsn FROM {stream}", {}, "column of the key"),
        (
            "SELECT id, n, body, _op, _lsn, _ts FROM {stream}",
            {"event_time": "_ts", "lateness": "1 second", "leave_out": ["_op", "_lsn", "_ts"]},
            "lateness",
        ),
    ],
)
def test_what_may_have_passed_over_a_change_keeps_no_value_and_says_why(
    engine, schema, tmp_path, query, config, why
):
    docs = Docs(engine, schema, tmp_path / "in", query, on_error="quarantine", **config)
    docs.put(change(row_of(body="a"), "r"))
    docs.create()
    docs.put(change(row_of(n=2, body=WORD)))
    engine.advance()
    (bad,) = docs.refused()
    assert "the stored value cannot replace it" in bad.reason
    assert why in bad.reason


def test_a_log_of_changes_has_no_value_to_keep(engine, schema, tmp_path):
    query = "SELECT id, n, body, _op FROM {stream}"
    config = {"key": [], "sequence_by": "", "delete_when": "", "leave_out": []}
    docs = Docs(engine, schema, tmp_path / "in", query, on_error="quarantine", **config)
    docs.put(change(row_of(body="a"), "c"), change(row_of(n=2, body=WORD)))
    docs.create()
    assert docs.rows() == [(1, 1, "a", "c")]
    (bad,) = docs.refused()
    assert bad.reason.endswith("REPLICA IDENTITY FULL makes PostgreSQL send it")


def test_a_column_that_is_new_is_not_taken_for_one_without_a_value(engine, schema, tmp_path):
    query = "SELECT id, n, _op, _lsn FROM {stream}"
    config = {"on_error": "quarantine", "on_schema_change": "append_new_columns"}
    docs = Docs(engine, schema, tmp_path / "in", query, **config)
    docs.put(change(row_of(body="a"), "c"))
    docs.create()
    docs.query = f"SELECT id, n, body, _op, _lsn FROM {STREAM}"
    docs.put(change(row_of(n=2, body=WORD)))
    docs.create()
    assert docs.rows() == [(1, 1, None)]
    assert len(docs.refused()) == 1
    docs.put(change(row_of(n=3, body="a")))
    docs.put(change(row_of(n=4, body=WORD)))
    engine.advance()
    assert docs.rows() == [(1, 4, "a")]


def test_views_of_such_a_table_follow_its_rows(engine, schema, tmp_path):
    docs = Docs(engine, schema, tmp_path / "in")
    docs.put(*(change(row_of(id=key, body="ab"[key % 2]), "c") for key in range(4)))
    docs.create()
    view, wide = f"lake.{schema}.per_body", f"lake.{schema}.wide"
    engine.create_materialized_view(
        view, f"SELECT body, sum(n) AS n FROM {docs.table} GROUP BY body"
    )
    branch = (f"SELECT id, body, n FROM {docs.table}", ["body", "n"])
    engine.create_partial_update(wide, key="id", branches=[branch])
    docs.put(change(row_of(id=1, n=7, body=WORD)))
    report = engine.advance()
    assert report.tables[view].mode == "incremental"
    found = sorted(tuple(row) for row in engine.sql(f"SELECT body, n FROM {view}").collect())
    assert found == [("a", 2), ("b", 8)]
    found = sorted(tuple(row) for row in engine.sql(f"SELECT id, body, n FROM {wide}").collect())
    assert found == [(0, "a", 1), (1, "b", 7), (2, "a", 1), (3, "b", 1)]
