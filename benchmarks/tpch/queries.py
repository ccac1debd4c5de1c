"""The 22 queries of TPC-H with the parameters of its validation run, in Spark's SQL.

The texts in `sql/` are the specification's; different are only: every output column has a plain
name, a view of q15 is a CTE, and the orders that a LIMIT cuts end with a key, so that there is one
answer. DuckDB reads the same texts; where a comparison needs the average of a decimal, `spark_avg`
of `tests/suites/oracle.py` rounds as Spark does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_ORDER = re.compile(r"^order by .*\Z", re.MULTILINE | re.DOTALL)
NAMES = tuple(f"q{number:02}" for number in range(1, 23))
LIMITED = ("q02", "q03", "q10", "q18", "q21")
"""The queries with ORDER BY and LIMIT."""


@dataclass(frozen=True)
class Place:
    """Where the tables are: their schema, and the scale factor that q11 asks for."""

    schema: str
    scale: float


def text(name: str, place: Place, average: str = "avg") -> str:
    """A query by its name; `q03_all` is q03 without its ORDER BY and LIMIT."""
    base, _, without_limit = name.partition("_")
    sql = (_FOLDER / f"{base}.sql").read_text(encoding="utf-8").strip()
    if without_limit:
        sql = _ORDER.sub("", sql).strip()
    fraction = f"{0.0001 / place.scale:.10f}"
    return sql.format(tpch=place.schema, fraction=fraction, avg=average)


def names(with_unlimited: bool = True) -> tuple[str, ...]:
    """All queries, and the five with LIMIT also without it."""
    extra = tuple(f"{name}_all" for name in LIMITED) if with_unlimited else ()
    return tuple(sorted((*NAMES, *extra)))
