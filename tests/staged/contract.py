"""What a staged table promises on every kind of target: functions of a `Target`.

Run in the process of the tests, or by `python contract.py <target> [<check> …]` in one whose Spark has the jars
and the settings of that target; then it prints a JSON object: check -> '' or its traceback.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.store.staged_tables import SqlStagedLedger
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.publish.constraints import Constraint
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.runtime.spark.session import new_session
from dbt_streamsql.storage.staged_table import StagingPurpose, TableSpec
from dbt_streamsql.storage.tables import registry

REPLACES = 50
ROWS = 1000


@dataclass
class Target:
    """Tables of one format in one schema; `folder` holds their files ('' when there are none).

    `names` lists the tables of another database by its own means.
    """

    engine: Engine
    catalog: str
    schema: str
    format: str
    folder: str = ""
    columns_may_change: bool = True
    has_comments: bool = True
    names: Callable[[], list[str]] | None = None
    number: int = field(default=0)

    @property
    def spark(self) -> Any:
        return self.engine.spark

    def spec(self, **more: Any) -> TableSpec:
        """A table with a name of its own."""
        self.number += 1
        name = TableName(self.catalog, self.schema, f"t{self.number}")
        return TableSpec(name, self.format, **more)

    def build(self, spec: TableSpec, query: str, **more: Any) -> bool:
        return self.engine.create_table_as(Build(spec, query, **more))

    def rows(self, spec: TableSpec) -> list[tuple[Any, ...]]:
        session = new_session(self.spark)
        return sorted(map(tuple, session.table(spec.name.sql).collect()))

    def listing(self) -> set[str]:
        if self.names is not None:
            return set(self.names())
        found = self.spark.sql(f"SHOW TABLES IN `{self.catalog}`.`{self.schema}`").collect()
        return {row["tableName"] for row in found}

    def leftovers(self) -> list[str]:
        """Whatever of a staged table is still there."""
        found = [record.table for record in self.engine.store.staged.records()]
        if self.names is not None:
            return found + [name for name in self.names() if name.startswith("streamsql_")]
        for row in self.spark.sql(f"SHOW NAMESPACES IN `{self.catalog}`").collect():
            if row[0].startswith("__streamsql"):
                hidden = self.spark.sql(f"SHOW TABLES IN `{self.catalog}`.`{row[0]}`").collect()
                found += [str(table["tableName"]) for table in hidden]
        return found

    def files(self) -> set[str]:
        """Data files on disk."""
        kinds = (".parquet", ".orc", ".avro")
        paths = Path(self.folder).rglob("*") if self.folder else ()
        return {str(path) for path in paths if path.suffix in kinds}


def refusal(work: Callable[[], Any]) -> Exception:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the caller looks at it
        return error
    raise AssertionError("it was not refused")


def code(work: Callable[[], Any]) -> str:
    error = refusal(work)
    assert isinstance(error, StreamSqlError), error
    return error.code


def a_new_table_appears_with_all_that_was_asked_for(target: Target) -> None:
    spec = target.spec(
        comment="it's \\ a `comment`",
        column_comments={"id": "the 'key'", "none": "there is no such column"},
        properties={"it's": "a \\' value"},
    )
    if not target.has_comments:
        spec = replace(spec, comment=None, column_comments={}, properties={})
    assert target.build(spec, "SELECT 1 AS id, 'a' AS name")
    assert target.rows(spec) == [(1, "a")]
    if target.has_comments:
        described = target.spark.sql(f"DESCRIBE EXTENDED {spec.name.sql}").collect()
        told = {row[0]: row for row in described}
        assert told["Comment"][1] == spec.comment
        assert told["id"][2] == "the 'key'"
        properties = target.spark.sql(f"SHOW TBLPROPERTIES {spec.name.sql}").collect()
        assert {row[0]: row[1] for row in properties}["it's"] == "a \\' value"
    assert target.leftovers() == []


def a_replaced_table_has_the_new_rows_only(target: Target) -> None:
    spec = target.spec()
    target.build(spec, "SELECT id, 'a' AS name FROM range(3)")
    target.build(spec, "SELECT id, 'b' AS name FROM range(2)")
    assert target.rows(spec) == [(0, "b"), (1, "b")]
    assert target.leftovers() == []


def a_query_that_fails_leaves_no_new_table_and_no_file(target: Target) -> None:
    before, files = target.listing(), target.files()
    failing = "SELECT id, 1 div (id - 900) AS x FROM range(0, 1000, 1, 4)"
    assert "DIVIDE_BY_ZERO" in str(refusal(lambda: target.build(target.spec(), failing)))
    assert target.listing() == before
    assert target.files() == files
    assert target.leftovers() == []


def a_query_that_fails_leaves_the_old_table_as_it_was(target: Target) -> None:
    spec = target.spec()
    target.build(spec, "SELECT id, 'a' AS name FROM range(3)")
    before, files = target.listing(), target.files()
    text = target.spark.sql(f"SHOW TBLPROPERTIES {spec.name.sql}").collect()
    failing = "SELECT id, cast(1 div (id - 900) AS string) AS name FROM range(0, 1000, 1, 4)"
    assert "DIVIDE_BY_ZERO" in str(refusal(lambda: target.build(spec, failing)))
    assert target.rows(spec) == [(0, "a"), (1, "a"), (2, "a")]
    assert target.listing() == before
    assert target.files() == files
    assert target.spark.sql(f"SHOW TBLPROPERTIES {spec.name.sql}").collect() == text
    assert target.leftovers() == []


def rows_that_break_a_constraint_are_never_seen(target: Target) -> None:
    spec = target.spec()
    good = "SELECT id, 'a' AS name FROM range(3)"
    promises = (
        Constraint("primary_key", ("id",)),
        Constraint("unique", ("name", "id")),
        Constraint("not_null", ("name",)),
        Constraint("check", expression="id < 100", name="small"),
    )
    target.build(spec, good, constraints=promises)
    files = target.files()
    for query, words in {
        "SELECT id % 2 AS id, 'b' AS name FROM range(3)": (
            "2 rows break",
            "primary_key",
            "id = 0",
        ),
        "SELECT id, if(id = 1, NULL, 'b') AS name FROM range(3)": ("1 row breaks", "not_null"),
        "SELECT id + 98 AS id, 'b' AS name FROM range(5)": ("3 rows break", "small: check"),
        "SELECT if(id = 1, NULL, id) AS id, 'b' AS name FROM range(3)": ("1 row", "primary_key"),
    }.items():
        error = refusal(lambda query=query: target.build(spec, query, constraints=promises))
        assert isinstance(error, StreamSqlError), error
        assert error.code == "CONSTRAINT_VIOLATED"
        assert all(word in str(error) for word in (*words, str(spec.name))), error
        assert target.rows(spec) == [(0, "a"), (1, "a"), (2, "a")]
    assert target.files() == files
    new = target.spec()
    twice = "SELECT 1 AS id, 'a' AS name UNION ALL SELECT 1, 'b'"
    work = lambda: target.build(new, twice, constraints=promises)  # noqa: E731 - asked once
    assert code(work) == "CONSTRAINT_VIOLATED"
    assert new.name.table not in target.listing()
    assert target.leftovers() == []


def columns_may_change_with_the_table(target: Target) -> None:
    spec = target.spec()
    target.build(spec, "SELECT id, 'a' AS name FROM range(3)")
    work = lambda: target.build(spec, "SELECT 7.5 AS name, true AS id, 1 AS more")  # noqa: E731 - once
    if target.columns_may_change:
        work()
        assert [(float(a), b, c) for a, b, c in target.rows(spec)] == [(7.5, True, 1)]
    else:
        assert code(work) == "ATOMIC_UNSUPPORTED"
        assert target.rows(spec) == [(0, "a"), (1, "a"), (2, "a")]
    assert target.leftovers() == []


def the_purpose_says_what_may_be_there(target: Target) -> None:
    spec = target.spec()
    assert target.build(spec, "SELECT 1 AS id", purpose=StagingPurpose.CREATE_TABLE_AS)
    again = "SELECT 2 AS id"
    work = lambda: target.build(spec, again, purpose=StagingPurpose.CREATE_TABLE_AS)  # noqa: E731 - once
    assert code(work) == "TABLE_EXISTS"
    unless = StagingPurpose.CREATE_TABLE_AS_IF_NOT_EXISTS
    assert not target.build(spec, again, purpose=unless)
    assert target.rows(spec) == [(1,)]
    assert target.build(target.spec(), again, purpose=unless)
    assert target.leftovers() == []


def what_a_dead_process_staged_is_removed_and_what_a_living_one_staged_is_not(
    target: Target,
) -> None:
    engine, old = target.engine, target.spec()
    target.build(old, "SELECT 1 AS id")
    before, ledgers, tokens = target.listing(), [], []
    for spec in (target.spec(), old, target.spec()):
        ledger = SqlStagedLedger(engine.store.database)
        ledgers.append(ledger)
        root = engine.warehouse.location_of(target.catalog)
        purpose = StagingPurpose.CREATE_OR_REPLACE_TABLE_AS
        staged = registry.apply_staging(target.spark, spec, purpose, root)
        ledger.record(staged.token, str(spec.name), registry.to_json(staged))
        staged.begin(target.spark, "SELECT 2 AS id")
        tokens.append(staged.token[:8])
    for ledger in ledgers[:2]:
        ledger.close()  # as a death does: the lock is free, the record stays
    assert engine.sweep() == 2
    assert target.rows(old) == [(1,)]
    records = engine.store.staged.records()
    assert [record.token for record in records] == [staged.token]
    staged.commit(target.spark)
    ledgers[2].forget(staged.token)
    assert target.rows(spec) == [(2,)]
    assert target.listing() - before == {spec.name.table}
    assert target.leftovers() == []
    assert not [file for file in target.files() if any(token in file for token in tokens[:2])]


def a_reader_in_a_loop_sees_whole_tables_only(target: Target) -> None:
    spec = target.spec()

    def query(version: int) -> str:
        return f"SELECT id, {version} AS version FROM range({ROWS}) "

    target.build(spec, query(0))
    stop, seen, problems = threading.Event(), set(), []

    def read() -> None:
        session = new_session(target.spark)
        while not stop.is_set():
            try:
                # What Spark remembers of a table's files is of its last look.
                session.catalog.refreshTable(spec.name.sql)
                found = session.sql(
                    f"SELECT count(*), min(version), max(version) FROM {spec.name.sql}"
                ).collect()[0]
            except Exception as error:  # noqa: BLE001 - any of them is a table that is not there
                problems.append(str(error)[:500])
                return
            if found[0] != ROWS or found[1] != found[2]:
                problems.append(str(found))
                return
            seen.add(found[1])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for version in range(1, REPLACES + 1):
            target.build(spec, query(version))
    finally:
        stop.set()
        reader.join()
    assert problems == []
    assert len(seen) > 3, "the reader hardly ran"
    assert target.leftovers() == []


CHECKS = {
    check.__name__: check
    for check in (
        a_new_table_appears_with_all_that_was_asked_for,
        a_replaced_table_has_the_new_rows_only,
        a_query_that_fails_leaves_no_new_table_and_no_file,
        a_query_that_fails_leaves_the_old_table_as_it_was,
        rows_that_break_a_constraint_are_never_seen,
        columns_may_change_with_the_table,
        the_purpose_says_what_may_be_there,
        what_a_dead_process_staged_is_removed_and_what_a_living_one_staged_is_not,
        a_reader_in_a_loop_sees_whole_tables_only,
    )
}


def run(target: Target, names: list[str]) -> dict[str, str]:
    """The checks of these names, with the traceback of those that failed."""
    results = {}
    for name in names:
        try:
            CHECKS[name](target)
            results[name] = ""
            sys.stderr.write(f"{name}: passed\n")
        except Exception:  # noqa: BLE001 - reported by the test
            results[name] = traceback.format_exc()
    return results


def main(kind: str, *names: str) -> None:
    from tests.staged import targets

    with tempfile.TemporaryDirectory() as folder, targets.STACK:
        results = run(targets.OPENERS[kind](Path(folder)), list(names or CHECKS))
        sys.stdout.write("\n" + json.dumps(results))
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
