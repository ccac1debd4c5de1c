"""An Iceberg or Delta table as a stream: the rows that came between two of its versions.

A position has `uuid` (which table) and `version` (None: before its first), as numbered by
`inputs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.rows import columns_of, records
from dbt_streamsql.connectors.sources.source import End, Position
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import summaries
from dbt_streamsql.storage.iceberg.scans.changes import UNCOUNTED, Change
from dbt_streamsql.storage.inputs import delta_log, file_tables, inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAIL, IGNORE, CHANGES = "fail", "ignore", "changes"
_OWN = (("_op", "string"), ("_seq", "bigint"))
"""`_seq` grows from barrier to barrier, and from a deleted row to the one that replaces it."""

_AT = f"{HIDDEN_PREFIX}version"


@dataclass(frozen=True)
class Table:
    """The connector `table`. `start` is earliest (all rows of the table) or latest."""

    table: TableName
    on_change: str
    start: str
    most: int | None
    declared: tuple[tuple[str, str], ...] = ()
    place: Place = field(default_factory=Place)

    @property
    def name(self) -> str:
        return f"table {self.table}"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        self._load(spark)
        schema = spark.table(self.table.sql).schema
        found = tuple((f.name, type_text(f.dataType)) for f in schema)
        return columns_of(found, self.declared, _OWN, self.place)

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """The newest version within the bound; compaction alone is not new data.

        Errors: STREAM_LOST when the version read last is gone, or the table is a different one;
        STREAM_CHANGED for deletes and updates that `on_change` does not allow.
        """
        meta = self._load(spark)
        if after is None:
            records = meta.told_rows(meta.current) if meta.format == "iceberg" else None
            return End(_position(meta, meta.current), records if self.start == "earliest" else 0)
        if after["uuid"] != meta.uuid:
            raise self._lost("it was dropped and recreated")
        change = self._change(meta, after["version"], self._newest(meta, after["version"]))
        if change.kind == "none":
            return None
        path = meta.lineage(change.new, change.old) or []
        oldest = min((found.committed for found in path if found.committed), default=None)
        rows = change.rows if change.insert_only and change.counted else None
        return End(_position(meta, change.new), rows, None if oldest is None else oldest / 1000)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        from pyspark.sql import functions as F

        meta = self._load(spark)
        if upto["uuid"] != meta.uuid or (after is not None and after["uuid"] != meta.uuid):
            raise self._lost("it was dropped and recreated")
        rows = self._rows(spark, meta, after, upto["version"])
        order = 2 * _order(meta, upto["version"])
        return records(
            spark.sql(
                f"SELECT *, :streamsql_order + IF(_op = 'd', 0L, 1L) AS _seq FROM {rows}",
                args={"streamsql_order": order},
            ),
            self.columns(spark),
            F.lit(_told(meta, upto["version"])),
            self.place,
        )

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Nothing to release."""

    def _rows(
        self, spark: SparkSession, meta: Metadata, after: Position | None, new: int | None
    ) -> str:
        names = tuple(found.name for found in spark.table(self.table.sql).schema)
        listed = ", ".join(quote(name) for name in names)
        if after is None:
            if new is not None and new not in meta.snapshots:
                raise self._lost(f"{_told(meta, new)} is gone")
            all_rows = inputs.as_now(spark, self.table, meta, new)
            none = " WHERE false" if self.start == "latest" else ""
            return f"(SELECT {listed}, 'r' AS _op FROM {all_rows}{none})"
        change = self._change(meta, after["version"], new)
        signed = inputs.read(self.table, meta, change, names)
        if signed is None:
            return f"(SELECT {listed}, 'c' AS _op FROM {self.table.sql} WHERE false)"
        if change.insert_only:
            return f"(SELECT {listed}, 'c' AS _op FROM {signed})"
        # A row that was inserted or deleted several times is one row with a weight.
        return (
            f"(SELECT {listed}, IF({WEIGHT} < 0, 'd', 'c') AS _op FROM {signed} LATERAL VIEW "
            f"explode(sequence(1L, abs({WEIGHT}))) {quote(_AT)} AS {quote(_AT)})"
        )

    def _change(self, meta: Metadata, old: int | None, new: int | None) -> Change:
        """How to read from one version to another. Errors: STREAM_LOST, STREAM_CHANGED."""
        gone = next((v for v in (old, new) if v is not None and v not in meta.snapshots), None)
        if gone is not None:
            raise self._lost(f"{_told(meta, gone)} is gone")
        path = None if old == new else meta.lineage(new, old)
        if old not in (None, new) and path is None:
            raise self._lost(f"{_told(meta, old)} is not an ancestor of {_told(meta, new)}")
        change = inputs.classify(meta, old, new)
        if change.kind == "lost":
            raise self._lost("its old files may be gone")
        others = [v for v in path or () if v.operation not in ("append", "replace")]
        if not others or self.on_change == CHANGES:
            return change
        if self.on_change == IGNORE and meta.format != delta_log.FORMAT:
            appends = [v for v in path or () if v.operation == "append"]
            counted = all(summaries.counts_rows(meta, v) for v in appends)
            rows = sum(v.count("added-records") for v in appends) if counted else UNCOUNTED
            # Iceberg's scan between two snapshots reads only the files of appends.
            return Change("append" if appends else "none", old, new, rows)
        why = "a Delta table does not show which rows were appended along with other changes"
        raise StreamSqlError(
            "STREAM_CHANGED",
            f"rows of {self.table} were deleted or updated; it is read as a stream of new rows",
            given=f"{others[0].operation} in {_told(meta, others[0].id)}"
            + (f"; {why}" if self.on_change == IGNORE else ""),
            allowed="appends and compaction",
            hint="`on_change: changes` reads deletes and updates too, for a model with a key; "
            "`on_change: ignore` skips them; `--full-refresh` starts again",
            place=self.place,
        )

    def _newest(self, meta: Metadata, old: int | None) -> int | None:
        """The last version with no more new rows than the bound, but at least one commit."""
        path = meta.lineage(meta.current, old) if self.most else None
        if not path:
            return meta.current
        total, newest, taken = 0, path[0], 0
        for version in path:
            if version.operation != "replace":
                told = meta.format == delta_log.FORMAT or summaries.counts_rows(meta, version)
                rows = version.count("added-records") + version.count("deleted-records")
                # A commit that does not count its rows is read by itself.
                total += rows if told else UNCOUNTED
                if taken and total > (self.most or 0):
                    break
                taken += 1
            newest = version
        return newest.id

    def _load(self, spark: SparkSession) -> Metadata:
        meta = inputs.load(spark, self.table)
        if meta is None:
            raise StreamSqlError(
                "TABLE_MISSING",
                f"the table {self.table}, which is read as a stream, does not exist",
                place=self.place,
            )
        if meta.format == file_tables.FORMAT:
            raise StreamSqlError(
                "SQL_UNSUPPORTED",
                f"{self.table} is a table of files",
                allowed="Iceberg and Delta tables",
                hint="read its folder with the connector `files`, or the table in a view",
                place=self.place,
            )
        return meta

    def _lost(self, why: str) -> StreamSqlError:
        return StreamSqlError(
            "STREAM_LOST",
            f"{self.table} cannot be read from its last position",
            given=why,
            hint="keep snapshots for longer than the time between two barriers; "
            "`--full-refresh` starts again",
            place=self.place,
        )


def source(options: Options) -> Table:
    """Error: CONFIG_INVALID."""

    def named(value: object) -> TableName | None:
        try:
            return TableName.parse(str(value))
        except StreamSqlError:
            return None

    table = options.get("table", named, "a name such as lake.shop.orders")
    on_change = options.choice("on_change", (FAIL, IGNORE, CHANGES), FAIL)
    start = options.choice("start", ("earliest", "latest"), "earliest")
    most = options.integer("max_records_per_barrier", None)
    options.check()
    return Table(table, on_change, start, most, options.columns, options.place)


def _order(meta: Metadata, version: int | None) -> int:
    """A number that is greater for later versions."""
    if version is None:
        return 0
    found = meta.snapshots[version]
    # Iceberg format version 1 does not number its snapshots.
    numbered = meta.format == delta_log.FORMAT or meta.format_version > 1
    return found.sequence if numbered else found.committed


def _position(meta: Metadata, version: int | None) -> Position:
    return {"uuid": meta.uuid, "version": version}


def _told(meta: Metadata, version: int | None) -> str:
    if version is None:
        return "the empty table"
    if meta.format == delta_log.FORMAT:
        return f"version {delta_log.version_of(version)}"
    return f"snapshot {version}"
