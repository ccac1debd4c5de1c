"""What `dbt run-operation` can ask of the engine: the upkeep of a warehouse as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dbt.adapters.base.meta import available

from dbt_streamsql.adapter.relations import RelationsAdapter


class OperationsAdapter(RelationsAdapter):
    """The adapter's methods that no model needs."""

    @available.parse(lambda *_, **__: 0)
    def streamsql_sweep(self) -> int:
        """Remove what dead processes left; how many things."""
        with self.connections.exception_handler("sweep"):
            return self.host.engine.sweep()

    @available.parse(lambda *_, **__: [])
    def streamsql_publish_views(
        self, schema: str, with_schema: bool = False, stop: bool = False
    ) -> list[str]:
        """Keep, or drop, SQL views of the maintained ones in a schema; their names."""
        with self.connections.exception_handler("publish views"):
            engine = self.host.engine
            if stop:
                return engine.stop_views(schema)
            return engine.publish_views(schema, with_schema=with_schema)

    @available.parse(lambda *_, **__: {})
    def streamsql_rebuild(self, store: str = "", dry_run: bool = False) -> dict[str, Any]:
        """Rebuild a lost store from the tables; what became of it (see `Rebuilt`)."""
        with self.connections.exception_handler("rebuild"):
            return asdict(self.host.engine.rebuild(store, dry_run=dry_run))
