"""A small shop, one epoch that does everything an epoch can do to a view, and what must come out.

The expected rows are computed in plain Python from the rows of the base tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dbt_streamsql.quoting import TableName
from tests.support.product import Build, Constraint, TableSpec

if TYPE_CHECKING:
    from dbt_streamsql import Engine

Rows = Counter[tuple[Any, ...]]
Base = Mapping[str, list[tuple[Any, ...]]]
"""Rows of `orders` (id, user_id, amount, qty) and `users` (id, city)."""

SCHEMA = "lake.shop"
_MERGE_ON_READ = (
    "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read', "
    "'write.update.mode'='merge-on-read')"
)
BASE = (
    "CREATE NAMESPACE lake.shop",
    "CREATE TABLE lake.shop.orders (id BIGINT, user_id BIGINT, amount DECIMAL(10,2), qty INT) "
    + _MERGE_ON_READ,
    "CREATE TABLE lake.shop.users (id BIGINT, city STRING) " + _MERGE_ON_READ,
    "INSERT INTO lake.shop.users SELECT id, concat('c', id % 5) FROM range(20)",
    "INSERT INTO lake.shop.orders SELECT id, id % 23, id % 7, id % 4 FROM range(80)",
)
EARLIER = ("INSERT INTO lake.shop.orders VALUES (100, 1, 2.50, 1), (101, NULL, 1.00, NULL)",)
"""Between the first two barriers, so that the killed epoch is not the first to maintain."""

CHANGES = (
    "INSERT INTO lake.shop.orders VALUES (200, 3, 9.99, 3), (200, 3, 9.99, 3), (201, 19, 1, 2)",
    "DELETE FROM lake.shop.orders WHERE qty = 2 AND id < 20",
    "UPDATE lake.shop.orders SET user_id = user_id + 1, qty = qty + 1 WHERE id % 10 = 3",
    "UPDATE lake.shop.users SET city = 'far' WHERE id < 3",
    "DELETE FROM lake.shop.users WHERE city = 'c4'",
)
"""Before the killed epoch: copies, keys that move, a group that empties, both sides of a join."""

VIEWS = {
    "by_city": "SELECT u.city, count(*) AS orders, sum(o.amount) AS revenue "
    "FROM lake.shop.orders o JOIN lake.shop.users u ON u.id = o.user_id GROUP BY u.city",
    "big_cities": "SELECT city, orders FROM lake.shop.by_city WHERE orders > 10",
    "lines": "SELECT o.id, u.city, o.qty FROM lake.shop.orders o "
    "JOIN lake.shop.users u ON u.id = o.user_id",
    "redone": "SELECT user_id, count(*) AS n FROM lake.shop.orders GROUP BY user_id",
    "uses_redone": "SELECT user_id, n FROM lake.shop.redone WHERE n > 3",
    "cut": "SELECT user_id, count(*) AS n FROM lake.shop.orders GROUP BY user_id",
    "neighbors": "SELECT u.id, c.n FROM (SELECT city, count(*) AS n FROM lake.shop.users "
    "GROUP BY city) c JOIN lake.shop.users u ON u.city = c.city",
}
STORED = {"neighbors"}
"""Views with a state table, which loses its last reader in the killed epoch."""
TOLD = {"by_city", "big_cities", "redone"}
"""Views with a changelog; the killed epoch takes it from `big_cities` and gives `extra` one."""
TOLD_AFTER = {"by_city", "extra", "redone"}
EXTRA = "SELECT city, revenue FROM lake.shop.by_city"
CUT = VIEWS["cut"] + " HAVING n > 3"
"""From the stored rows, and then from the change of the inputs."""
REDONE = "SELECT user_id, sum(qty) AS pieces, count(*) AS n FROM lake.shop.orders GROUP BY user_id"


def build(engine: Engine) -> tuple[Base, Base]:
    """Make the shop with two barriers and unconsumed changes; base rows at the last, and now."""
    spark = engine.spark
    for statement in BASE:
        spark.sql(statement)
    engine.begin()
    for name, query in VIEWS.items():
        state = "all" if name in STORED else "none"
        engine.create_materialized_view(
            f"{SCHEMA}.{name}", query, changelog=name in TOLD, state=state
        )
    engine.publish()
    for statement in EARLIER:
        spark.sql(statement)
    engine.advance()
    then = _base(engine)
    for statement in CHANGES:
        spark.sql(statement)
    return then, _base(engine)


def epoch(engine: Engine, reached: Callable[[], None] = lambda: None) -> None:
    """The epoch under test: a new view, two with other definitions, and all others maintained."""
    engine.begin()
    engine.create_materialized_view(f"{SCHEMA}.extra", EXTRA, changelog=True)
    engine.create_materialized_view(f"{SCHEMA}.redone", REDONE, changelog=True)
    engine.create_materialized_view(f"{SCHEMA}.cut", CUT)
    engine.create_materialized_view(f"{SCHEMA}.big_cities", VIEWS["big_cities"])
    engine.create_materialized_view(f"{SCHEMA}.neighbors", VIEWS["neighbors"], state="none")
    engine.advance()
    reached()
    engine.publish()


def stage(engine: Engine) -> None:
    """A plain table is replaced, with other columns, and another one appears."""
    for name in ("plain", "fresh"):
        spec = TableSpec(TableName("lake", "shop", name), column_comments={"id": "the key"})
        promise = Constraint("primary_key", ("id",))
        engine.create_table_as(
            Build(spec, "SELECT id, id % 7 AS part FROM range(9)", constraints=(promise,))
        )


def recover(engine: Engine) -> None:
    """What any next run does first."""
    engine.begin()
    engine.abort()


def contents(base: Base, *, after: bool) -> dict[str, Rows]:
    """The rows of every view over these base rows, before or after the epoch under test."""
    city = dict(base["users"])
    lines = [
        (id_, city[user], amount, qty) for id_, user, amount, qty in base["orders"] if user in city
    ]
    count: Counter[str] = Counter()
    revenue: Counter[str] = Counter()
    for _, where, amount, _ in lines:
        count[where] += 1
        revenue[where] += amount
    orders = Counter(user for _, user, _, _ in base["orders"])
    living = Counter(where for _, where in base["users"])
    pieces: dict[Any, int | None] = {}
    for _, user, _, qty in base["orders"]:
        pieces[user] = _plus(pieces.get(user), qty)
    found = {
        "by_city": Counter((where, count[where], revenue[where]) for where in count),
        "big_cities": Counter((where, n) for where, n in count.items() if n > 10),
        "lines": Counter((id_, where, qty) for id_, where, _, qty in lines),
        "redone": Counter((user, n) for user, n in orders.items()),
        "uses_redone": Counter((user, n) for user, n in orders.items() if n > 3),
        "cut": Counter(orders.items()),
        "neighbors": Counter((id_, living[where]) for id_, where in base["users"]),
    }
    if after:
        found["extra"] = Counter((where, revenue[where]) for where in count)
        found["cut"] = found["uses_redone"]
        found["redone"] = Counter((user, pieces[user], n) for user, n in orders.items())
    return found


def _plus(left: int | None, right: int | None) -> int | None:
    """SQL's sum: NULLs do not count, and only NULLs make NULL."""
    known = [value for value in (left, right) if value is not None]
    return sum(known) if known else None


def _base(engine: Engine) -> Base:
    return {
        name: [tuple(row) for row in engine.spark.table(f"{SCHEMA}.{name}").collect()]
        for name in ("orders", "users")
    }
