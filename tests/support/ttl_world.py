"""Tables whose rows expire, and views over them that forget."""

from __future__ import annotations

from contextlib import contextmanager

from dbt_streamsql import StreamSqlError

TTL = 300.0
"""Seconds; no test takes as many, and twelve are an hour."""


class World:
    """Tables of a schema, and views over them; `clock` is the engine's."""

    def __init__(self, engine, schema, clock):
        self.clock = clock
        self.engine, self.spark, self.schema = engine, engine.spark, f"lake.{schema}"
        self.views = set()
        self.table("orders", "order_id INT, product STRING")
        self.table("shipments", "order_id INT, status STRING")

    def table(self, name, columns):
        self.spark.sql(
            f"CREATE TABLE {self.schema}.{name} ({columns}) TBLPROPERTIES ('format-version' = '3',"
            " 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )

    def sql(self, text):
        return [tuple(row) for row in self.spark.sql(text.format(s=self.schema)).collect()]

    def view(self, name, query, state_ttl=None, **config):
        made = self.engine.create_materialized_view(
            f"{self.schema}.{name}", query.format(s=self.schema), state_ttl=state_ttl, **config
        )
        self.views.add(name)
        return made

    def epoch(self, *statements):
        for statement in statements:
            self.sql(statement)
        return self.engine.advance().tables

    def expire(self):
        """All that is there is older than the TTL."""
        self.clock.jump(TTL + 1)

    def rows(self, name, columns="order_id, product, status"):
        return sorted(self.sql(f"SELECT {columns} FROM {{s}}.{name}"), key=str)

    def verified(self, name):
        return self.engine.verify(f"{self.schema}.{name}")

    def check(self):
        """That each view is what its last epoch should have made, where that is known."""
        for name in self.views:
            with suppress_untold():
                assert self.verified(name) == [], name


@contextmanager
def suppress_untold():
    try:
        yield
    except StreamSqlError as error:
        if error.code != "STATE_FORGOTTEN" or "definition" not in error.message:
            raise


JOIN = (
    "SELECT o.order_id, o.product, s.status FROM {s}.orders o "
    "JOIN {s}.shipments s ON o.order_id = s.order_id"
)
