"""Programs that write Iceberg tables beside Spark: pyiceberg, DuckDB, Flink, and Iceberg's Java.

Each puts rows (k BIGINT, v STRING, n BIGINT) into a table of a REST catalog and takes rows with
some keys out of it. A table is named by its namespace and its name. Numbers are above 2³¹: smaller
ones reach Java as an `Integer`, which no writer of a BIGINT takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from py4j.java_gateway import JavaGateway

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.quoting import literal
from tests.support.java_parts import java_with

FLINK = Path(__file__).parent / "flink.jars"
_OPEN = ("java.lang", "java.net", "java.nio", "java.time", "java.util")
_SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", "string"), ("n", "int64")])

Row = tuple[int, str | None, int]
Table = tuple[str, str]


class Writer(Protocol):
    def put(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows of new keys."""

    def change(self, table: Table, rows: Sequence[Row]) -> None:
        """Replace rows by rows of the same keys."""

    def take(self, table: Table, keys: Collection[int]) -> None:
        """Remove the rows of some keys."""


class Sql:
    """A writer that runs SQL as Spark and DuckDB have it."""

    def __init__(self, catalog: str, run: Any) -> None:
        self._catalog, self._run = catalog, run

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        self._run(f"INSERT INTO {self._name(table)} VALUES {_values(rows)}")

    def change(self, table: Table, rows: Sequence[Row]) -> None:
        for key, text, number in rows:
            told = f"v = {_text(text)}, n = {number}"
            self._run(f"UPDATE {self._name(table)} SET {told} WHERE k = {key}")

    def take(self, table: Table, keys: Collection[int]) -> None:
        self._run(f"DELETE FROM {self._name(table)} WHERE k IN ({_list(keys)})")

    def _name(self, table: Table) -> str:
        return ".".join((self._catalog, *table))


class PyIceberg:
    """Copy on write, whatever the table says."""

    def __init__(self, uri: str) -> None:
        from pyiceberg.catalog.rest import RestCatalog

        self._catalog = RestCatalog("rest", uri=uri)

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        self._catalog.load_table(table).append(_arrow(rows))

    def change(self, table: Table, rows: Sequence[Row]) -> None:
        keys = [key for key, _, _ in rows]
        self._catalog.load_table(table).overwrite(_arrow(rows), f"k in ({_list(keys)})")

    def take(self, table: Table, keys: Collection[int]) -> None:
        self._catalog.load_table(table).delete(f"k in ({_list(keys)})")


class Flink:
    """Flink's sink: rows that replace others remove them by equality."""

    def __init__(self, gateway: JavaGateway, uri: str) -> None:
        jvm = gateway.jvm
        api = jvm.org.apache.flink.table.api
        flat = jvm.org.apache.flink.configuration.Configuration()
        flat.setString("parallelism.default", "1")
        settings = api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(flat)
        self._tables = api.TableEnvironment.create(settings.build())
        told = f"'type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '{uri}'"
        self._tables.executeSql(f"CREATE CATALOG rest WITH ({told})")

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        self._insert(table, rows, "false")

    def change(self, table: Table, rows: Sequence[Row]) -> None:
        self._insert(table, rows, "true")

    def _insert(self, table: Table, rows: Sequence[Row], is_upsert: str) -> None:
        into = f"rest.{table[0]}.{table[1]} /*+ OPTIONS('upsert-enabled' = '{is_upsert}') */"
        done = self._tables.executeSql(f"INSERT INTO {into} VALUES {_values(rows)}")
        getattr(done, "await")()


class JavaApi:
    """Iceberg's Java classes: rows go by their keys (equality), in commits of rows and deletes."""

    def __init__(self, gateway: JavaGateway, uri: str) -> None:
        self._gateway, self._jvm = gateway, gateway.jvm
        self._iceberg = self._jvm.org.apache.iceberg
        self._catalog = self._iceberg.rest.RESTCatalog()
        self._catalog.initialize("rest", {"uri": uri})

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        there = self._load(table)
        there.newAppend().appendFile(self._rows(there, rows)).commit()

    def change(self, table: Table, rows: Sequence[Row]) -> None:
        there = self._load(table)
        gone = self._deletes(there, [key for key, _, _ in rows])
        both = there.newRowDelta().addRows(self._rows(there, rows)).addDeletes(gone)
        both.commit()

    def take(self, table: Table, keys: Collection[int]) -> None:
        there = self._load(table)
        there.newRowDelta().addDeletes(self._deletes(there, keys)).commit()

    def _load(self, table: Table) -> Any:
        within = self._iceberg.catalog.Namespace.of(self._array(self._jvm.String, [table[0]]))
        return self._catalog.loadTable(self._iceberg.catalog.TableIdentifier.of(within, table[1]))

    def _rows(self, there: Any, rows: Sequence[Row]) -> Any:
        writer = self._writers(there).newDataWriter(self._file(there), self._parquet, None)
        for key, text, number in rows:
            record = self._iceberg.data.GenericRecord.create(there.schema())
            for name, value in zip("kvn", (key, text, number), strict=True):
                record.setField(name, value)
            writer.write(record)
        writer.close()
        return writer.toDataFile()

    def _deletes(self, there: Any, keys: Collection[int]) -> Any:
        writer = self._writers(there).newEqDeleteWriter(self._file(there), self._parquet, None)
        for key in keys:
            record = self._iceberg.data.GenericRecord.create(self._key(there))
            record.setField("k", key)
            writer.write(record)
        writer.close()
        return writer.toDeleteFile()

    def _writers(self, there: Any) -> Any:
        ids = self._array(self._jvm.int, [there.schema().findField("k").fieldId()])
        made = self._iceberg.data.GenericAppenderFactory
        return made(there.schema(), there.spec(), ids, self._key(there), None)

    def _file(self, there: Any) -> Any:
        path = there.locationProvider().newDataLocation(f"{uuid.uuid4()}.parquet")
        out = there.io().newOutputFile(path)
        return self._iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(out)

    def _key(self, there: Any) -> Any:
        return there.schema().select(self._array(self._jvm.String, ["k"]))

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        made = self._gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    @property
    def _parquet(self) -> Any:
        return self._iceberg.FileFormat.PARQUET


@contextmanager
def java_writers(uri: str, folder: Path) -> Iterator[tuple[Flink, JavaApi]]:
    """Both writers of Java, in one process."""
    opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPEN]
    with java_with(FLINK, folder / "flink.log", opens) as gateway:
        yield Flink(gateway, uri), JavaApi(gateway, uri)


@contextmanager
def duckdb(version: str, uri: str) -> Iterator[Sql]:
    """DuckDB of a version, in a process of its own."""
    packages = _installed(version)
    child = [sys.executable, str(Path(__file__).with_name("duckdb_child.py")), uri]
    env = {**os.environ, "PYTHONPATH": str(packages)}
    with subprocess.Popen(
        child, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, told = process.stdin, process.stdout

        def run(statement: str) -> None:
            print(json.dumps(statement), file=given, flush=True)
            said = json.loads(told.readline())
            if said is not None:
                raise AssertionError(f"DuckDB {version}: {said}\n{statement}")

        yield Sql("rest", run)


def _installed(version: str) -> Path:
    """The folder of DuckDB's packages of a version, installed once."""
    folder = cache_folder() / "writers" / f"duckdb-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        names = ("duckdb", *(f"duckdb-extension-{each}" for each in ("httpfs", "avro", "iceberg")))
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            wanted = [f"{name}=={version}" for name in names]
            own = ["--disable-pip-version-check", "--target", f"{made}/packages"]
            subprocess.run([*pip, *own, *wanted], check=True)
            with suppress(OSError):  # another process was quicker
                Path(made, "packages").rename(folder)
    return folder


def _values(rows: Sequence[Row]) -> str:
    return ", ".join(f"({key}, {_text(text)}, {number})" for key, text, number in rows)


def _text(text: str | None) -> str:
    return "CAST(NULL AS STRING)" if text is None else literal(text)


def _list(keys: Collection[int]) -> str:
    return ", ".join(map(str, sorted(keys)))


def _arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip("kvn", row, strict=True)) for row in rows], _SCHEMA)
