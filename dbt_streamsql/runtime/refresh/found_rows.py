"""Rows of inputs that the process has in an epoch: those found by keys, and those known before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.spark.scratch import Scratch, TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.scans.keyed_rows import Asked


@dataclass(frozen=True)
class _Found:
    """The rows that have one of `keys`, kept as `name`."""

    keys: pa.Array
    rows: pa.Table
    name: str


@dataclass
class FoundRows:
    """The rows of one program. A row that several terms ask for is read once."""

    spark: SparkSession
    local: Scratch
    _noted: dict[str, TempRelation] = field(default_factory=dict)
    _found: dict[tuple[TableName, int, str], _Found] = field(default_factory=dict)
    _left: set[tuple[TableName, int, str]] = field(default_factory=set)

    def known(self, frame: str) -> TempRelation | None:
        """The rows of a frame, and perhaps others; None where the process does not have them."""
        return self.local.known(frame) or self._noted.get(frame)

    def note(
        self, frame: str, parts: Sequence[TempRelation | None], columns: Sequence[str]
    ) -> None:
        """The rows of a frame are among those of some parts, which all have the columns."""
        rows = [part.rows for part in parts if part is not None and part.rows is not None]
        if len(rows) < len(parts):
            return
        shown = [each.data.select(columns) for each in rows]
        if all(each.schema.types == shown[0].schema.types for each in shown):
            data = pa.concat_tables(shown, promote_options="default")
            schema = StructType([rows[0].schema[column] for column in columns])
            self._noted[frame] = self.local.keep(DriverRows(data, schema))

    def with_keys(self, name: TableName, snapshot: int, asked: Asked) -> str:
        """The rows of a snapshot that have one of the keys, and perhaps others; '' where Spark has
        to read them."""
        at = (name, snapshot, asked.key)
        if at in self._left:
            return ""
        before = self._found.get(at)
        if before is not None and before.keys.type != asked.keys.type:
            before = None
        keys = asked.keys if before is None else _without(asked.keys, before.keys)
        if before is not None and not len(keys):
            return before.name
        parts = tables_of(self.spark).keyed_rows(name, snapshot, replace(asked, keys=keys))
        if parts is None:
            self._left.add(at)
            return ""
        rows = [part.rows for part in parts]
        if before is not None:
            rows, keys = [before.rows, *rows], pa.concat_arrays([before.keys, keys])
        data = pa.concat_tables(rows)
        schema = from_arrow_schema(data.schema, prefer_timestamp_ntz=True)
        kept = self.local.keep(DriverRows(data, schema))
        self._found[at] = _Found(keys, data, kept.name)
        return kept.name


def _without(keys: pa.Array, known: pa.Array) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=known)))
