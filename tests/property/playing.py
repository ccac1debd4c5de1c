"""Plays a random scenario: after every epoch every view equals its query."""

from __future__ import annotations

from collections import Counter

from tests.property.grammar import Scenario
from tests.support.catalogs import drop_schema


class Difference(AssertionError):
    """A view that is not its query."""


def play(engine, chosen: Scenario, modes: Counter | None = None) -> None:
    """Run a scenario in a schema of its own; raise `Difference` at the first wrong view."""
    schema = f"lake.p_{chosen.seed}"
    # What is compared with its query is not kept from changes, whatever that costs.
    mode = "incremental" if engine.warehouse.tuning.comparing else "auto"
    engine.spark.sql(f"DROP NAMESPACE IF EXISTS {schema}")
    engine.spark.sql(f"CREATE NAMESPACE {schema}")
    try:
        for statement in chosen.create:
            engine.spark.sql(statement.format(schema=schema))
        made: list[str] = []
        seen: dict[str, object] = {}
        engine.begin()
        for number, sql in enumerate(chosen.views):
            name = f"{schema}.v{number}"
            text = sql.replace("{schema}", schema).replace("{{", "{").replace("}}", "}")
            engine.create_materialized_view(name, text, refresh_mode=mode)
            made.append(name)
        engine.publish()
        for number, statements in enumerate(chosen.epochs):
            for statement in statements:
                engine.spark.sql(statement.format(schema=schema))
            report = engine.advance()
            for name in made:
                if "stored rows" in report.tables[name].reason:
                    raise Difference(f"{name} was wrong in epoch {number}, a full refresh hid it")
                if modes is not None:
                    modes[report.tables[name].mode] += 1
                state = version_of(engine, name)
                if seen.get(name) == state:
                    continue
                seen[name] = state
                wrong = engine.verify(name)
                if wrong:
                    raise Difference(f"{name} after epoch {number}: {wrong[:4]}")
    finally:
        engine.abort()
        drop_schema(engine, schema.removeprefix("lake."))


def version_of(engine, name):
    """The version of a view and of what it was computed from: equal means nothing to verify."""
    latest = engine.store.latest(name)
    return latest.snapshot, dict(latest.inputs)


WAYS = {
    "the driver writes": {"held_rows": -1, "decoded_bytes": 0},
    "rows are found in files": {"held_rows": -1, "big_rows": 0, "compared_rows": -1},
    "the process looks rows up": {},
    "the query is compared": {"comparing": 0.0, "compared_rows": 1_000_000, "held_rows": -1},
    "rows in the process are compared": {
        "comparing": 0.0,
        "compared_rows": 1_000_000,
        "read_alone": 0,
    },
    "small tables are rewritten": {"driver_rows": -1},
    "long changes stay in Spark": {"driver_bytes": -1, "compared_rows": -1},
    "no result comes to the driver": {"fetched_bytes": 0},
    "big tables are merged into": {"driver_rows": -1, "small_table": -1},
    "big tables are looked into": {"big_rows": 0, "compared_rows": -1, "decoded_bytes": 0},
    "parts of queries are stored": {"storing": 0.0, "compared_rows": -1},
}
"""How changes are written: the limits of `Tuning` that lead there."""
