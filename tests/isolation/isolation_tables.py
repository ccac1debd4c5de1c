"""Two roots, four views over them, one query that reads all four, and what its answer must be.

`transfers` moves money between accounts, two rows that sum to nothing; `steps` gets a number each
time. Both are written before an epoch begins, so at each barrier they have the same newest number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbt_streamsql import Engine

SCHEMA = "lake.bank"
ROOTS = (f"{SCHEMA}.transfers", f"{SCHEMA}.steps")
VIEWS = {
    "balances": "SELECT account, sum(amount) AS balance, count(*) AS entries "
    "FROM lake.bank.transfers GROUP BY account",
    "moved": "SELECT max(n) AS last, count(*) AS entries FROM lake.bank.transfers",
    "seen": "SELECT n FROM lake.bank.steps",
    "summary": "SELECT b.entries, s.steps, s.last FROM "
    "(SELECT sum(entries) AS entries FROM lake.bank.balances) b CROSS JOIN "
    "(SELECT count(*) AS steps, max(n) AS last FROM lake.bank.seen) s",
}
LOOKS = {
    "balances": "SELECT sum(balance) AS total, sum(entries) AS entries FROM {}",
    "moved": "SELECT entries, last FROM {}",
    "seen": "SELECT count(*) AS steps, max(n) AS last FROM {}",
    "summary": "SELECT entries, steps, last FROM {}",
}
"""What one answer says of each table, as one row."""

QUERY = "SELECT * FROM " + " CROSS JOIN ".join(
    f"({look.format(f'{SCHEMA}.{view}')}) AS {view}" for view, look in LOOKS.items()
)
_VERSION = re.compile(r"((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+)){2} VERSION AS OF \d+)")


@dataclass(frozen=True)
class Answer:
    """The row that `QUERY` gives."""

    total: int
    balances: int
    moved: int
    moved_last: int
    seen: int
    seen_last: int
    summary: int
    steps: int
    last: int

    @classmethod
    def of(cls, values: Any) -> Answer:
        return cls(*(int(value) for value in values))

    @property
    def fractured(self) -> bool:
        """Whether it mixes barriers: at each one all of these agree."""
        return not (
            self.total == 0
            and self.balances == self.moved == self.summary
            and self.seen == self.steps
            and self.seen_last == self.last == self.moved_last
        )


def versions(text: str) -> list[str] | None:
    """The versions that a rewritten `QUERY` reads, in the order of `LOOKS`; None when a table is
    read as it is now."""
    found = _VERSION.findall(text)
    return found if len(found) == len(LOOKS) else None


def build(engine: Engine) -> None:
    """The roots with a first number in each, and the views."""
    engine.spark.sql("CREATE NAMESPACE lake.bank")
    engine.spark.sql("CREATE TABLE lake.bank.transfers (n INT, account INT, amount INT)")
    engine.spark.sql("CREATE TABLE lake.bank.steps (n INT)")
    write(engine, 1)
    engine.begin()
    for view, query in VIEWS.items():
        engine.create_materialized_view(f"{SCHEMA}.{view}", query)
    engine.publish()


def write(engine: Engine, n: int) -> None:
    """The writes between two epochs."""
    engine.spark.sql(
        f"INSERT INTO lake.bank.transfers VALUES ({n}, {n % 5}, {-n}), ({n}, {(n + 1) % 5}, {n})"
    )
    engine.spark.sql(f"INSERT INTO lake.bank.steps VALUES ({n})")
