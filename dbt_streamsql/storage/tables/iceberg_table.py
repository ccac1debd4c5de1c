"""Iceberg: a hidden table becomes the table, by a rename or by a swap of the metadata pointer.

An existing table is staged as a second catalog entry that starts from the same metadata file: so
the replacement carries the old history, refs, field ids and row ids, and publishing it is one
compare-and-swap of the pointer. Where the pointer is out of reach, or when another writer has
written in the meantime, the staged rows are copied by one CREATE OR REPLACE, which is atomic too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.conf import snapshot_properties
from dbt_streamsql.storage.iceberg import files, metadata, staging
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.staged_table import (
    StagingPurpose,
    TableSpec,
    already_there,
    comment_columns,
    gone,
)

TOKEN_PROPERTY = "streamsql.staged"  # noqa: S105 - the name of a snapshot property
_DATA, _METADATA = "write.data.path", "write.metadata.path"
_FORGETS = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True)
class IcebergStagedTable:
    """`base`: the metadata file of the replaced table, when its pointer can be swapped.

    `location`: of the published table; `folder`: of the staged files, at or under it. Both are ''
    when the catalog chooses the location.
    """

    spec: TableSpec
    purpose: StagingPurpose
    token: str
    base: str = ""
    location: str = ""
    folder: str = ""

    @classmethod
    def plan(
        cls, spark: SparkSession, spec: TableSpec, purpose: StagingPurpose, token: str, root: str
    ) -> IcebergStagedTable:
        """Look up the current table of that name; `root` is the warehouse ('' when unknown)."""
        old = metadata.load(spark, spec.name)
        if old is not None:
            base = tables_of(spark).newest_file(spec.name)
            place = spec.location or old.location
            return cls(spec, purpose, token, base, place, _inside(place, token) if base else "")
        if spec.location:
            place = spec.location
            return cls(spec, purpose, token, "", place, _inside(place, token))
        name = spec.name
        folder = posixpath.join(root, name.schema, f"{name.table}-{token[:8]}") if root else ""
        return cls(spec, purpose, token, "", folder, folder)

    @property
    def at(self) -> TableName:
        return TableName(self.spec.name.catalog, staging.STAGING_SCHEMA, f"t_{self.token}")

    @property
    def staged(self) -> str:
        return self.at.sql

    def exists(self, spark: SparkSession) -> bool:
        return staging.exists(spark, self.spec.name)

    def begin(self, spark: SparkSession, query: str) -> None:
        staging.create_schema(spark, self.at.catalog, self.at.schema)
        verb = "CREATE TABLE"
        if self.base:
            verb = "CREATE OR REPLACE TABLE"
            tables_of(spark).add(self.at, self.base)
        text = self.spec.create_as(verb, self.at, query, self.location, self._own)
        with snapshot_properties(spark, {TOKEN_PROPERTY: self.token}):
            spark.sql(text)
        comment_columns(spark, self.at, self.spec.column_comments)

    def commit(self, spark: SparkSession) -> None:
        if metadata.load(spark, self.at) is None:
            raise gone(self.spec.name)
        if not staging.exists(spark, self.spec.name):
            self._rename(spark)
        elif self.purpose is not StagingPurpose.CREATE_OR_REPLACE_TABLE_AS:
            raise already_there(self.spec.name)
        elif self.base and self._swap(spark):
            _drop_entry(spark, self.at)
        else:
            self._copy(spark)
            self.abort(spark)

    def abort(self, spark: SparkSession) -> None:
        if self._published(spark):
            _drop_entry(spark, self.at)
            return
        if self.base:
            _drop_entry(spark, self.at)
        else:
            staging.drop_table(spark, self.at)
        if self.folder:
            files.purge_folder(spark, self.at.catalog, self.folder)

    @property
    def _own(self) -> Mapping[str, str]:
        """Properties of the hidden table only."""
        if not self.folder or self.folder == self.location:
            return {}
        # The metadata log begins with the files that the visible table needs.
        return {
            _DATA: f"{self.folder}/data",
            _METADATA: f"{self.folder}/metadata",
            _FORGETS: "false",
        }

    def _final(self, before: Mapping[str, str]) -> dict[str, str | None]:
        """The final values of the hidden table's own properties; `before`: the old table's."""
        return {key: self.spec.properties.get(key, before.get(key)) for key in self._own}

    def _rename(self, spark: SparkSession) -> None:
        name = self.spec.name
        staging.create_schema(spark, name.catalog, name.schema)
        final = self._final({})
        kept = {key: value for key, value in final.items() if value is not None}
        staging.set_properties(spark, self.at, kept, [key for key in final if key not in kept])
        spark.sql(f"ALTER TABLE {self.at.sql} RENAME TO {quote(name.schema)}.{quote(name.table)}")

    def _swap(self, spark: SparkSession) -> bool:
        """Give the table the staged metadata; False when another writer has changed it."""
        old = metadata.load(spark, self.spec.name)
        before = old.properties if old is not None else {}
        return tables_of(spark).swap(self.spec.name, self.base, self.at, self._final(before))

    def _copy(self, spark: SparkSession) -> None:
        name, query = self.spec.name, f"SELECT * FROM {self.at.sql}"
        verb = "CREATE OR REPLACE TABLE"
        spark.sql(self.spec.create_as(verb, name, query, self.spec.location, {}))

    def _published(self, spark: SparkSession) -> bool:
        """Whether the table, or its history, uses the staged files."""
        table = metadata.load(spark, self.spec.name) if self.folder else None
        if table is None or (
            self.base and tables_of(spark).newest_file(self.spec.name) == self.base
        ):
            return False
        if any(s.summary.get(TOKEN_PROPERTY) == self.token for s in table.snapshots.values()):
            return True
        used = spark.sql(
            f"SELECT 1 FROM {self.spec.name.child('all_files')} "
            "WHERE startswith(file_path, :folder) LIMIT 1",
            args={"folder": f"{self.folder}/"},
        )
        return bool(used.collect())


def _inside(location: str, token: str) -> str:
    return f"{location.rstrip('/')}/_streamsql_{token}"


def _drop_entry(spark: SparkSession, name: TableName) -> None:
    """Remove a name from the catalog; every file stays."""
    if metadata.load(spark, name) is not None:
        spark.sql(f"DROP TABLE IF EXISTS {name.sql}")
