"""What `dbt run-operation` can ask of the engine: the maintenance of a whole warehouse."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dbt.adapters.base.meta import available

from dbt_streamsql.adapter.relations import RelationsAdapter


class OperationsAdapter(RelationsAdapter):
    """The adapter's methods that no model needs."""

    @available.parse(lambda *_, **__: 0)
    def streamsql_sweep(self) -> int:
        """Remove what dead processes left; return how many things."""
        with self.connections.exception_handler("sweep"):
            return self.host.engine.sweep()

    @available.parse(lambda *_, **__: [])
    def streamsql_publish_views(
        self, schema: str, with_schema: bool = False, stop: bool = False
    ) -> list[str]:
        """Keep, or drop, SQL views of the maintained ones in a schema; return their names."""
        with self.connections.exception_handler("publish views"):
            engine = self.host.engine
            if stop:
                return engine.stop_views(schema)
            return engine.publish_views(schema, with_schema=with_schema)

    @available.parse(lambda *_, **__: {})
    def streamsql_rebuild(self, store: str = "", dry_run: bool = False) -> dict[str, Any]:
        """Rebuild a lost store from the tables; return the outcome (see `Rebuilt`)."""
        with self.connections.exception_handler("rebuild"):
            return asdict(self.host.engine.rebuild(store, dry_run=dry_run))

    @available.parse(lambda *_, **__: [])
    def streamsql_revise(
        self, table: str, to_barrier: int | None, sql: str, mode: Any, dry_run: bool
    ) -> list[str]:
        """Revise a table (see `Engine.revise`), or only preview it; one line per table."""
        from dbt_streamsql.engine import revisions

        engine = self.host.engine
        with self.connections.exception_handler(sql or f"revise {table}"):
            asked = {"to_barrier": to_barrier, "sql": sql or "", "mode": mode}
            if dry_run:
                return revisions.lines_before(engine.plan_revision(table, **asked))
            return revisions.lines_after(engine.revise(table, **asked))

    @available.parse(lambda *_, **__: {})
    def streamsql_gc(self, dry_run: bool, orphans_older_than: str) -> dict[str, Any]:
        """Remove all that is no longer needed; return what was removed."""
        with self.connections.exception_handler("gc"):
            engine = self.host.engine
            return asdict(engine.gc(dry_run=dry_run, orphans_older_than=orphans_older_than))
