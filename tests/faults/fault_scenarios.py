"""What a process does when a fault meets it: one entry each, for `make chaos` and its share of
`make processes`.

To add one: a builder, a task that can be run again whatever became of its first run, and the views
and plain tables with their queries, before the task and after each of its points of no return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from tests.faults import fault_scenario as shop

if TYPE_CHECKING:
    from dbt_streamsql import Engine

Queries = Mapping[str, str]
"""The tables of the schema and their queries, which may read each other and the base tables."""

DECISIVE = {("barrier.precommit", "after"), ("staged.commit", "after"), ("view.drop", "after")}
"""Passing one of these leads from one of a scenario's `stages` to the next."""


@dataclass(frozen=True)
class Scenario:
    """`build` makes the tables of `stages[0]` over the base tables, which change afterwards; then
    `task` leads through the other stages. `after` is a scenario whose process was killed first,
    and at the passing of which step."""

    task: Callable[[Engine], object]
    stages: tuple[Queries, ...]
    build: Callable[[Engine], object] = lambda engine: None
    changes: tuple[str, ...] = shop.CHANGES
    after: tuple[str, str, str, int] | None = None


def _define(
    engine: Engine, views: Queries, told: tuple[str, ...] = (), state: str = "auto"
) -> None:
    engine.begin()
    for name, query in views.items():
        engine.create_materialized_view(
            f"{shop.SCHEMA}.{name}", query, changelog=name in told, state=state
        )
    engine.publish()


def _two_barriers(
    views: Queries, told: tuple[str, ...] = (), state: str = "auto"
) -> Callable[[Engine], None]:
    """The views, maintained once already."""

    def build(engine: Engine) -> None:
        _define(engine, views, told, state)
        for statement in shop.EARLIER:
            engine.spark.sql(statement)
        engine.advance()

    return build


MAINTAINED = {name: shop.VIEWS[name] for name in ("by_city", "big_cities", "lines")}
"""A join with its groups, a view over that, and a join that is appended to."""

DIAMOND = {
    "per_user": "SELECT user_id, count(*) AS n, sum(amount) AS paid FROM lake.shop.orders "
    "GROUP BY user_id",
    "per_city": "SELECT city, count(*) AS users FROM lake.shop.users GROUP BY city",
    "paid_in": "SELECT u.city, sum(p.paid) AS paid FROM lake.shop.per_user p "
    "JOIN lake.shop.users u ON u.id = p.user_id GROUP BY u.city",
    "share": "SELECT c.city, p.paid, c.users FROM lake.shop.per_city c "
    "LEFT JOIN lake.shop.paid_in p ON p.city = c.city",
}
"""Two roots, of which one reaches the last view in two ways."""

OLD = {
    "renamed": "SELECT id, city FROM lake.shop.users",
    "grown": "SELECT user_id, count(*) AS n FROM lake.shop.orders GROUP BY user_id",
    "other": "SELECT user_id, max(amount) AS most FROM lake.shop.orders GROUP BY user_id",
    "reader": "SELECT user_id, most FROM lake.shop.other WHERE most > 2",
}
NEW = {
    "renamed": "SELECT id AS who, city AS place FROM lake.shop.users",
    "grown": "SELECT user_id, count(*) AS n, sum(qty) AS pieces FROM lake.shop.orders "
    "GROUP BY user_id",
    "other": "SELECT user_id, min(amount) AS most FROM lake.shop.orders WHERE qty > 0 "
    "GROUP BY user_id",
    "reader": OLD["reader"],
}
"""Columns with other names, one more column, another query, and a view over it."""

_PER_USER = "SELECT user_id, count(*) AS n FROM lake.shop.orders GROUP BY user_id"
STORED = {
    "popular": f"SELECT u.city, p.n FROM ({_PER_USER}) p JOIN lake.shop.users u ON u.id = p.user_id",
    "levels": f"SELECT q.n, count(*) AS users FROM ({_PER_USER}) q GROUP BY q.n",
    "idle": "SELECT id, city FROM lake.shop.users u WHERE NOT EXISTS "
    "(SELECT 1 FROM lake.shop.orders o WHERE o.user_id = u.id AND o.qty > 1)",
}
"""Two views that can share a state table, and one that can have keys of its own."""


_LINES = (
    "SELECT u.city, o.amount, o.qty FROM lake.shop.orders o JOIN lake.shop.users u "
    "ON u.id = o.user_id"
)
DECIDED = {
    **STORED,
    "dearest": f"SELECT city, max(amount) AS most FROM ({_LINES}) d GROUP BY city",
    "fewest": f"SELECT x.qty, min(x.amount) AS least FROM ({_LINES}) x GROUP BY x.qty",
}
"""The same, and two views that can share a join."""


def _decide(engine: Engine, storing: float) -> None:
    """What is stored of running views is decided again: everything, or nothing (-1)."""
    limits = {"storing": storing, "decided_again": 1, "compared_rows": -1}
    engine.warehouse.tuning = replace(engine.warehouse.tuning, **limits)
    engine.advance()


def _decided(engine: Engine) -> None:
    """Views with state tables that were decided on while they ran."""
    _two_barriers(DECIDED)(engine)
    engine.spark.sql("INSERT INTO lake.shop.users VALUES (40, 'c40')")
    _decide(engine, 0.0)


def _store(engine: Engine, *names: str) -> None:
    """Parts of these views are stored from now on, and of no others."""
    engine.begin()
    for name, query in STORED.items():
        state = "all" if name in names else "none"
        engine.create_materialized_view(f"{shop.SCHEMA}.{name}", query, state=state)
    engine.advance()
    engine.publish()


KEPT = {"lines": MAINTAINED["lines"]}
DROPPED = {**KEPT, "by_city": MAINTAINED["by_city"]}
PLAIN = dict.fromkeys(("plain", "fresh"), "SELECT id, id % 7 AS part FROM range(9)")


def _redefine(engine: Engine) -> None:
    engine.begin()
    for name in ("renamed", "grown", "other"):
        engine.create_materialized_view(f"{shop.SCHEMA}.{name}", NEW[name])
    engine.advance()
    engine.publish()


def _drop(engine: Engine) -> None:
    if engine.queries.knows("lake.shop.by_city"):
        engine.drop("lake.shop.by_city")


def _rebuild(engine: Engine) -> None:
    engine.begin()
    engine.create_materialized_view(
        "lake.shop.by_city", MAINTAINED["by_city"], full_refresh=True, changelog=True
    )
    engine.advance()
    engine.publish()


COUNTED = {
    "pieces": "SELECT user_id, sum(qty) AS n FROM lake.shop.orders GROUP BY user_id",
    "many": "SELECT user_id, n FROM lake.shop.pieces WHERE n > 3",
}
CORRECTED = {
    **COUNTED,
    "pieces": "SELECT user_id, sum(qty) AS n FROM lake.shop.orders WHERE id >= 20 GROUP BY user_id",
}


def _correct(engine: Engine) -> None:
    engine.revise("lake.shop.orders", sql="DELETE FROM lake.shop.orders WHERE id < 20")


def _revise(engine: Engine) -> None:
    try:
        engine.revise("lake.shop.pieces", to_barrier=1)
    except StreamSqlError as refused:
        # Once it is published, retention lets go of the barrier that it goes back to.
        published = engine.store.last_committed() == 3
        if not published or refused.code != "META_CONFLICT":
            raise


_NUMBERED = (
    "(SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY id DESC) AS n "
    "FROM lake.shop.orders)"
)
STREAMED = {
    "events": "SELECT id, user_id, qty FROM lake.shop.orders",
    "last_order": f"SELECT user_id, id, qty FROM {_NUMBERED} WHERE n = 1 AND qty <> 0",
    "last_order__tombstones": f"SELECT user_id FROM {_NUMBERED} WHERE n = 1 AND qty = 0",
    "by_qty": "SELECT qty, count(*) AS users FROM lake.shop.last_order GROUP BY qty",
}
"""The orders as a stream: each one, and the newest of each user, which is none where it is of
nothing; and a view over that."""


def _stream(engine: Engine) -> None:
    orders = "lake.shop.orders"
    source = {"connector": "table", "options": {"table": orders}}
    engine.begin()
    engine.create_streaming_table(
        *("lake.shop.events", f"SELECT id, user_id, qty FROM {orders}"),
        stream=orders,
        source=source,
    )
    engine.create_streaming_table(
        *("lake.shop.last_order", f"SELECT user_id, id, qty FROM {orders}"),
        stream=orders,
        source=source,
        key=["user_id"],
        sequence_by="id",
        delete_when="qty = 0",
    )
    engine.create_materialized_view("lake.shop.by_qty", STREAMED["by_qty"])
    engine.publish()


SCENARIOS: dict[str, Scenario] = {
    "first": Scenario(lambda engine: _define(engine, MAINTAINED), ({}, MAINTAINED), changes=()),
    "maintain": Scenario(
        lambda engine: engine.advance(),
        (MAINTAINED, MAINTAINED),
        _two_barriers(MAINTAINED, ("by_city",)),
    ),
    "diamond": Scenario(
        lambda engine: engine.advance(), (DIAMOND, DIAMOND), _two_barriers(DIAMOND)
    ),
    "redefine": Scenario(_redefine, (OLD, NEW), _two_barriers(OLD)),
    "rebuild": Scenario(
        _rebuild, (MAINTAINED, MAINTAINED), _two_barriers(MAINTAINED, ("by_city",))
    ),
    "drop": Scenario(_drop, (DROPPED, KEPT), _two_barriers(DROPPED, ("by_city",)), changes=()),
    "revise": Scenario(
        _revise, (COUNTED, COUNTED), _two_barriers(COUNTED, ("pieces",)), changes=()
    ),
    "correct": Scenario(
        _correct, (COUNTED, CORRECTED), _two_barriers(COUNTED, ("pieces",)), changes=()
    ),
    "stream": Scenario(
        lambda engine: engine.advance(),
        (STREAMED, STREAMED),
        _stream,
        # New and late orders of known and of new users; some are of nothing.
        (
            (
                "INSERT INTO lake.shop.orders SELECT IF(id % 2 = 0, -1 - id, 300 + id), id % 29, 1, "
                "id % 3 FROM range(0, 200, 3)"
            ),
        ),
    ),
    "store": Scenario(lambda engine: _store(engine, *STORED), ({}, STORED), changes=()),
    "share": Scenario(
        lambda engine: _store(engine, *STORED),
        ({"popular": STORED["popular"]}, STORED),
        _two_barriers({"popular": STORED["popular"]}, state="all"),
    ),
    "unshare": Scenario(
        lambda engine: _store(engine, "idle"),
        (STORED, STORED),
        _two_barriers(STORED, state="all"),
    ),
    "decide": Scenario(
        lambda engine: _decide(engine, 0.0), (DECIDED, DECIDED), _two_barriers(DECIDED)
    ),
    "undecide": Scenario(lambda engine: _decide(engine, -1.0), (DECIDED, DECIDED), _decided),
    "plain": Scenario(
        shop.stage,
        ({}, {"plain": PLAIN["plain"]}, PLAIN),
        changes=(),
    ),
    "undo": Scenario(
        shop.recover,
        (DIAMOND,),
        after=("diamond", "barrier.precommit", "before", 1),
    ),
    "finish": Scenario(
        shop.recover,
        (DIAMOND,),
        after=("diamond", "table.written", "before", 2),
    ),
}
"""By name. `undo` and `finish` are recoveries that meet a fault themselves."""
