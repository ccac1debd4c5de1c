"""What a sink has to deliver: its query over the change of a table between two of its versions.

With `Q` the sink's query, which handles each row by itself, and `d = plus - minus` the signed
change of the table, the change of what was delivered is `Q(plus) - Q(minus)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.connectors.sinks.target import (
    AFTER,
    BAD_KEY,
    BEFORE,
    OPERATION,
)
from dbt_streamsql.meta import Job, Sink, TableVersion
from dbt_streamsql.meta.model.stored_definition import columns_of, stored_sink
from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.runtime.changelog import changelog_query
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.storage.columns import collected
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs

_SIGN, _CAME = f"{HIDDEN_PREFIX}sign", f"{HIDDEN_PREFIX}came"


@dataclass(frozen=True)
class SinkRows:
    """The rows of one sink in one session. `is_sure`: the table's own key keeps the sink's key.
    `few`: those that have changed may come to the driver."""

    spark: SparkSession
    local: Scratch
    rewrite: Rewrite
    sink: Sink
    job: Job
    is_sure: bool
    few: bool

    @property
    def name(self) -> TableName:
        return TableName.parse(self.job.table)

    def whole(self, newest: TableVersion, *, keyed: bool) -> DataFrame:
        """All rows of the sink's query."""
        signed = f"SELECT *, 1L AS {quote(_SIGN)} FROM ({self._all(newest)})"
        return self._shaped(signed, keyed=keyed)

    def changed(
        self, meta: Metadata, old: TableVersion, new: TableVersion, *, keyed: bool
    ) -> DataFrame | None:
        """The change between two versions; None when the table is unchanged.

        Error: SINK_KEY, when two rows of the newer version have the key of a changed row.
        """
        change = self._change(meta, old.snapshot, new.snapshot)
        if not change:
            return None
        parts = [
            f"SELECT *, {sign}L AS {quote(_SIGN)} FROM ({self._over(change, sign)})"
            for sign in (1, -1)
        ]
        signed = " UNION ALL ".join(parts)
        columns = columns_of(self.sink.columns)
        if all(map(likeness.has_likeness, columns)):
            names, keys = likeness.grouped(columns)
            total = f"sum({quote(_SIGN)})"
            signed = (
                f"SELECT {names}, {total} AS {quote(_SIGN)} FROM ({signed}) "
                f"GROUP BY {keys} HAVING {total} <> 0"
            )
        shaped = self._shaped(signed, keyed=keyed)
        if keyed and not self.is_sure:
            self._check(shaped, new)
        return shaped

    def _change(self, meta: Metadata, old: int | None, new: int | None) -> str:
        """The change of the table, computed once, as a relation: it is read twice. '': none."""
        newer = tables_of(self.spark).newer_rows() if self.few else None
        try:
            found = changelog_query.change(self.name, meta, old, new, self.job, newer)
            if found is None:
                return ""
            sql = f"SELECT * FROM {found}"
            if self.few:
                return self.local.collect(sql, small=True).name
            return self.local.cached(self.spark.sql(sql))
        finally:
            if newer is not None:
                newer.close()

    def _all(self, version: TableVersion) -> str:
        """The sink's query over one version of its table."""
        names = _names(changelog_query.names_of(self.job))
        return self._asked(f"(SELECT {names} FROM {inputs.version(self.name, version.snapshot)})")

    def _over(self, change: str, sign: int) -> str:
        """The sink's query over the rows added (1) or removed (-1), each as often as it was."""
        names = _names(changelog_query.names_of(self.job))
        copies = f"explode(array_repeat(1, CAST(abs({WEIGHT}) AS INT))) AS {quote(_SIGN)}"
        where = f"{WEIGHT} {'>' if sign > 0 else '<'} 0"
        return self._asked(
            f"(SELECT {names} FROM (SELECT {names}, {copies} FROM {change} WHERE {where}))"
        )

    def _asked(self, rows: str) -> str:
        table = str(self.name)
        names = _names(column["name"] for column in self.sink.columns)
        text = self.rewrite(self.sink.sql, lambda name: rows if str(name) == table else None)
        return f"SELECT {names} FROM (\n{text}\n)"

    def _shaped(self, signed: str, *, keyed: bool) -> DataFrame:
        if not keyed:
            names = _names(column["name"] for column in self.sink.columns)
            copies = (
                f"array_repeat(IF({quote(_SIGN)} > 0, '+', '-'), CAST(abs({quote(_SIGN)}) AS INT))"
            )
            return self.spark.sql(
                f"SELECT {names}, explode({copies}) AS {OPERATION} FROM ({signed})"
            )
        key = stored_sink(self.sink).key
        columns = [column["name"] for column in self.sink.columns]
        row = "named_struct(" + ", ".join(f"{literal(c)}, {quote(c)}" for c in columns) + ")"
        by, sign = _names(key), quote(_SIGN)
        shown = "concat_ws(', ', " + ", ".join(f"CAST({quote(k)} AS STRING)" for k in key) + ")"
        absent = " OR ".join(f"{quote(k)} IS NULL" for k in key)
        bad = (
            f"IF({absent}, raise_error('{BAD_KEY}a row has no key'), "
            f"IF({quote(_CAME)} > 1, "
            f"raise_error('{BAD_KEY}two rows have the key ' || {shown}), true))"
        )
        return self.spark.sql(
            f"SELECT {by}, {BEFORE}, {AFTER} FROM (SELECT {by}, "
            f"any_value(IF({sign} < 0, {row}, NULL), true) AS {BEFORE}, "
            f"any_value(IF({sign} > 0, {row}, NULL), true) AS {AFTER}, "
            f"sum(greatest({sign}, 0L)) AS {quote(_CAME)} FROM ({signed}) GROUP BY {by}) "
            f"WHERE coalesce({bad}, true)"
        )

    def _check(self, changed: DataFrame, new: TableVersion) -> None:
        """The key of a changed row must be that of one row only, changed or not."""
        key = stored_sink(self.sink).key
        by, seen = _names(key), self.local.view(changed)
        same = " AND ".join(f"a.{quote(k)} = c.{quote(k)}" for k in key)
        double = (
            f"SELECT {by} FROM (SELECT a.* FROM ({self._all(new)}) AS a "
            f"LEFT SEMI JOIN {seen} AS c ON {same}) GROUP BY {by} HAVING count(*) > 1 LIMIT 1"
        )
        found = collected(self.spark.sql(double))
        if found:
            raise DoubleKeyError(", ".join(str(value) for value in found[0]))


class DoubleKeyError(Exception):
    """Two rows have this key."""


def readable(warehouse: Warehouse, job: Job, version: TableVersion) -> Metadata | None:
    """The table's metadata; None when that version cannot be read, or had other columns."""
    name, spark = TableName.parse(job.table), warehouse.sessions.main
    meta = metadata.load(spark, name)
    if meta is None or version.snapshot not in meta.snapshots:
        return None
    same = changelog_query.same_columns(spark, inputs.version(name, version.snapshot), job)
    return meta if same else None


def _names(names: object) -> str:
    return ", ".join(quote(name) for name in names)  # type: ignore[attr-defined]
