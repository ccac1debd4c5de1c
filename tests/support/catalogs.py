"""What several kinds of tests share."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace


def drop_schema(engine, name):
    """Forget the views of a schema and drop everything in it."""
    prefix = f"lake.{name}."
    store = engine.store
    fence = store.acquire(wait=True)
    try:
        for table in store.jobs():
            if table.startswith(prefix):
                store.drop_job(fence, table)
    finally:
        store.release(fence)
    for kind, column in (("VIEW", "viewName"), ("TABLE", "tableName")):
        for row in engine.spark.sql(f"SHOW {kind}S IN lake.{name}").collect():
            engine.spark.sql(f"DROP {kind} lake.{name}.`{row[column]}`")
    engine.spark.sql(f"DROP NAMESPACE lake.{name}")


@contextmanager
def configured(spark, settings):
    """A session with some settings, for the length of the block."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


def own_catalog(spark, folder):
    """A warehouse apart from all others: `name` of its catalog, and `session()` for new sessions."""
    name = "c" + folder.name.replace("-", "")
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        ".warehouse": str(folder),
        ".jdbc.schema-version": "V1",
        ".cache-enabled": "false",
    }

    def session():
        made = spark.newSession()
        for key, value in settings.items():
            made.conf.set(f"spark.sql.catalog.{name}{key}", value)
        return made

    return SimpleNamespace(name=name, session=session)
