"""The maintained views for readers without an engine: plain SQL views that all move together.

A catalog replaces one view at a time, and a query looks up its views one after another. So the
version that a view shows is not in its text but in one small table next to the views, `CURRENT`:
the text holds the newest version and the one before, and uses the one that `CURRENT` names. A
query reads a table once, however many views use it, so all its views are of the same barrier:

    1. the texts of views whose tables have changed get the new version next to the old one
    2. `CURRENT` names the new versions: one commit, after which all views show the new barrier
    3. views that are no longer wanted go, and tags follow the versions that the texts name

A query that has looked up a text before 1 and `CURRENT` after 2 finds that the text lacks the
version, and fails with a message. Every step is idempotent: after a crash all of them run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, Job, Published
from dbt_streamsql.quoting import TableName, literal, pairs, quote
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.commits import table_maintenance, tags
from dbt_streamsql.storage.inputs import inputs

CURRENT = "__streamsql_current"
"""The table next to published views that says which version each of them shows."""

MARK = f"{staging.OWN_PROPERTIES}published"
"""A property of published views, and of `CURRENT`: `name`, or `schema_name` where their names
include the schema."""

_COLUMNS = "view STRING, shown BIGINT, before BIGINT, source STRING, columns STRING"
_MOVED = "the published views have moved on while this query was prepared: run it again"
_SNAPSHOTS = 100
"""Snapshots of `CURRENT` before old ones go; each barrier adds one."""


@dataclass(frozen=True)
class View:
    """One published view: the snapshot of `source` that it shows, and the one `before`, if its
    text holds that too. `columns` are names and types as JSON."""

    source: str
    shown: int
    before: int | None
    columns: str


def publish(warehouse: Warehouse, fence: Fence, views: Published) -> list[str]:
    """Show every maintained view in a schema from now on; returns the names of the SQL views.

    Errors: CONFIG_INVALID for names that clash, a schema that is published otherwise, or a catalog
    without views; TABLE_EXISTS when another owner has such a name.
    """
    store, spark = warehouse.store, warehouse.sessions.main
    for known in store.published():
        if known.schema == views.schema and known != views:
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"{views.schema} is published under different names",
                hint="stop that first: `streamsql publish-views --stop`",
            )
    shelf = _Shelf(warehouse, views)
    shelf.check()
    staging.create_schema(spark, warehouse.catalog, views.schema)
    with failpoint("views.begin"):
        shelf.make_current()
        store.publish_views(fence, views)
    try:
        shelf.move()
    except PySparkException as error:
        if "VIEW" not in str(error.getCondition()) and "view" not in str(error):
            raise
        shelf.remove()
        store.stop_views(fence, views.schema)
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"views cannot be published: the catalog {warehouse.catalog} cannot store them",
            given=str(error).splitlines()[0],
            allowed="an Iceberg catalog with views: jdbc with jdbc.schema-version=V1, rest, hive",
        ) from error
    return sorted(shelf.wanted())


def stop(warehouse: Warehouse, fence: Fence, schema: str) -> list[str]:
    """Drop the published views of a schema; their names. CONFIG_INVALID when there are none."""
    for views in warehouse.store.published():
        if views.schema == schema:
            with failpoint("views.end"):
                gone = _Shelf(warehouse, views).remove()
                warehouse.store.stop_views(fence, schema)
            return gone
    raise StreamSqlError(
        "CONFIG_INVALID",
        f"no views are published in {schema}",
        allowed=", ".join(v.schema for v in warehouse.store.published()) or "there are none",
    )


def refresh(warehouse: Warehouse) -> None:
    """Let all published views show the newest barrier. A failure is logged, and retried at the
    next one: it must not fail a run that is committed."""
    for views in warehouse.store.published():
        try:
            _Shelf(warehouse, views).move()
        except (PySparkException, Py4JError, StreamSqlError) as error:
            what = str(error).splitlines()[0]
            log.warning(
                "the published views of %s still show an older barrier: %s", views.schema, what
            )


class _Shelf:
    """The published views of one schema."""

    def __init__(self, warehouse: Warehouse, views: Published) -> None:
        self.warehouse, self.views = warehouse, views
        self.spark: SparkSession = warehouse.sessions.main
        self.current = TableName(warehouse.catalog, views.schema, CURRENT)

    def wanted(self) -> dict[str, View]:
        """What the views are to show, by name; of several with one name, only the first."""
        return {name: views[0] for name, views in self._by_name().items()}

    def check(self) -> None:
        """Refuse names that clash, and those that are taken."""
        for name, views in self._by_name().items():
            if len(views) > 1:
                raise StreamSqlError(
                    "CONFIG_INVALID",
                    f"two views would be published as {self.views.schema}.{name}",
                    given=", ".join(view.source for view in views),
                    hint="add the schema to their names: --with-schema",
                )
            if self._foreign(name):
                raise StreamSqlError(
                    "TABLE_EXISTS",
                    f"{self._at(name)} exists and is not a published view",
                    hint="use a separate schema for published views, or --with-schema",
                )

    def make_current(self) -> None:
        kind = "schema_name" if self.views.with_schema else "name"
        properties = {
            definition_property.STORE: self.warehouse.store_id,
            MARK: kind,
            "write.metadata.delete-after-commit.enabled": "true",
        }
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.current.sql} ({_COLUMNS}) USING iceberg "
            f"TBLPROPERTIES {pairs(properties)}"
        )

    def move(self) -> None:
        """Bring texts, `CURRENT` and tags to the newest barrier, in this order."""
        have, wanted = self._shown(), self.wanted()
        changed: dict[str, View] = {}
        for name, view in wanted.items():
            old = have.get(name)
            if old is not None and (old.shown, old.source) == (view.shown, view.source):
                wanted[name] = old
                if old.columns == view.columns:
                    continue
            elif old is None and self._foreign(name):
                log.warning("%s is not published: the name is taken", self._at(name))
                continue
            same = old is not None and (old.source, old.columns) == (view.source, view.columns)
            before = old.shown if old is not None and same and self._there(old) else None
            before = before if before != view.shown else None
            changed[name] = View(view.source, view.shown, before, view.columns)
        gone = sorted(set(have) - set(wanted))
        if not changed and not gone:
            return
        for name, view in sorted(changed.items()):
            with failpoint("views.replace"):
                self._replace(name, view)
        now = {name: view for name, view in have.items() if name in wanted} | changed
        with failpoint("views.move"):
            self._write(now)
        for name in gone:
            with failpoint("views.drop"):
                self._drop(name)
        self._pin([*have.values(), *now.values()], now.values())
        meta = metadata.load(self.spark, self.current)
        if meta is not None and meta.current is not None and len(meta.snapshots) > _SNAPSHOTS:
            past = [snapshot for snapshot in meta.snapshots if snapshot != meta.current]
            table_maintenance.expire(self.spark, self.current, past)

    def remove(self) -> list[str]:
        """Drop everything; returns the names of the views."""
        if metadata.load(self.spark, self.current) is None:
            return []
        have = self._shown()
        # Those that a dead process has created are not in the table.
        names = {*have, *(n for n in self.wanted() if not self._foreign(n))}
        for name in sorted(names):
            self._drop(name)
        self._pin(have.values(), ())
        staging.drop_table(self.spark, self.current)
        return sorted(names)

    def _there(self, view: View) -> bool:
        """Whether a version that a view has shown can still be read."""
        meta = metadata.load(self.spark, TableName.parse(view.source))
        return meta is not None and view.shown in meta.snapshots

    # -- what there is -----------------------------------------------------------------------

    def _by_name(self) -> dict[str, list[View]]:
        latest = self.warehouse.store.latest_all()
        found: dict[str, list[View]] = {}
        for table, job in sorted(self.warehouse.store.jobs().items()):
            name, version = TableName.parse(table), latest.get(table)
            if version is None or version.snapshot is None or name.schema == self.views.schema:
                continue
            called = f"{name.schema}_{name.table}" if self.views.with_schema else name.table
            view = View(table, version.snapshot, None, _columns(job))
            found.setdefault(called, []).append(view)
        return found

    def _shown(self) -> dict[str, View]:
        rows = self.spark.sql(f"SELECT * FROM {self.current.sql}").collect()
        return {
            row["view"]: View(row["source"], row["shown"], row["before"], row["columns"])
            for row in rows
        }

    def _foreign(self, name: str) -> bool:
        """Whether another owner has a table or a view of that name."""
        at = self._at(name)
        if not staging.exists(self.spark, at):
            return False
        rows = self.spark.sql(f"SHOW TBLPROPERTIES {at.sql}").collect()
        return not any(row[0] == MARK for row in rows)

    def _at(self, name: str) -> TableName:
        return TableName(self.warehouse.catalog, self.views.schema, name)

    # -- what changes ------------------------------------------------------------------------

    def _replace(self, name: str, view: View) -> None:
        text = _text(name, view, self.current)
        self.spark.sql(
            f"CREATE OR REPLACE VIEW {self._at(name).sql} "
            f"TBLPROPERTIES ('{MARK}' = {literal(view.source)}) AS {text}"
        )

    def _write(self, views: Mapping[str, View]) -> None:
        if not views:
            self.spark.sql(f"DELETE FROM {self.current.sql}")
            return
        rows = ", ".join(
            f"({literal(name)}, {view.shown}L, {_number(view.before)}, {literal(view.source)}, "
            f"{literal(view.columns)})"
            for name, view in sorted(views.items())
        )
        self.spark.sql(f"INSERT OVERWRITE {self.current.sql} VALUES {rows}")

    def _drop(self, name: str) -> None:
        self.spark.sql(f"DROP VIEW IF EXISTS {self._at(name).sql}")

    def _pin(self, known: Iterable[View], named: Iterable[View]) -> None:
        """Tag exactly the versions that texts name, apart from what views have consumed."""
        wanted: dict[str, set[int]] = {view.source: set() for view in known}
        for view in named:
            wanted[view.source] |= {at for at in (view.shown, view.before) if at is not None}
        for source, snapshots in sorted(wanted.items()):
            name = TableName.parse(source)
            meta = inputs.load(self.spark, name)
            if meta is not None:
                with failpoint("pins.move"):
                    owner = f"{self.views.schema}_{self.warehouse.store_id}"
                    tags.reconcile(self.spark, name, meta, f"views_{owner}", snapshots)


def _columns(job: Job) -> str:
    return json.dumps([(column["name"], column["type"]) for column in job.columns])


def _number(snapshot: int | None) -> str:
    return "CAST(NULL AS BIGINT)" if snapshot is None else f"{snapshot}L"


def _text(name: str, view: View, current: TableName) -> str:
    """The query of a published view.

    A version that `CURRENT` does not name meets an empty side of a join, for which Spark, at
    run time, leaves the other side unread.
    """
    columns: list[tuple[str, str]] = json.loads(view.columns)
    names = ", ".join(f"t.{quote(column)}" for column, _ in columns)
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {quote(column)}" for column, kind in columns)
    table = TableName.parse(view.source).sql
    versions = [at for at in (view.shown, view.before) if at is not None]
    parts = [
        f"SELECT {names} FROM {table} VERSION AS OF {at} AS t CROSS JOIN "
        f"(SELECT 1 FROM {current.sql} WHERE view = {literal(name)} AND shown = {at}L) AS c"
        for at in versions
    ]
    listed = ", ".join(f"{at}L" for at in versions)
    known = f"count_if(view = {literal(name)} AND shown IN ({listed}))"
    parts.append(
        f"SELECT {empty} FROM (SELECT {known} AS n FROM {current.sql}) AS c "
        f"WHERE CASE WHEN n = 0 THEN isnull(raise_error({literal(_MOVED)})) ELSE false END"
    )
    return "\nUNION ALL\n".join(parts)
