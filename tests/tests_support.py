"""What several kinds of tests share."""

from __future__ import annotations


def drop_schema(engine, name):
    """Forget the views of a schema and drop everything in it."""
    prefix = f"lake.{name}."
    store = engine._warehouse.store
    fence = store.acquire(wait=True)
    for table in store.jobs():
        if table.startswith(prefix):
            store.drop_job(fence, table)
    store.release(fence)
    for kind, column in (("VIEW", "viewName"), ("TABLE", "tableName")):
        for row in engine.spark.sql(f"SHOW {kind}S IN lake.{name}").collect():
            engine.spark.sql(f"DROP {kind} lake.{name}.`{row[column]}`")
    engine.spark.sql(f"DROP NAMESPACE lake.{name}")
