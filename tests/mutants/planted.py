"""Bugs that are planted one at a time; the tests have to find each.

Not here, because the program stays right with them (it computes more, or the same):
- before and after exchanged everywhere in the telescoping sum of an inner join: its mirror image;
- no DISTINCT on keys that a semi or anti join reads, or on the partners of an outer join's rows;
- NULL keys kept in the net change of partners: the `=` that follows takes none of them;
- no `HAVING sum <> 0` on that net change: a key whose count stays does not flip;
- a side of a join restricted by columns that are not its keys: the join's own `=` does it again;
- two `Collect` steps of one name: each is read before the next is made;
- DISTINCT kept in MIN and MAX; frames never kept, or kept each time; hints left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.planted_queries import QUERIES
from tests.mutants.planted_rules import RULES
from tests.mutants.planted_spark import SPARK
from tests.mutants.planted_ttl import TTL
from tests.mutants.planted_wide import WIDE


@dataclass(frozen=True)
class Bug:
    """`old` stands once in `file` (of `dbt_streamsql`) and becomes `new`, which makes `wrong` true.

    `tier` is to find it: 'duckdb', with queries of the operators `hint` alone, or 'spark', with
    the tests whose names hold `hint`, in the files that `run.py` lists.
    """

    id: str
    tier: str
    file: str
    old: str
    new: str
    wrong: str
    hint: str


BUGS: tuple[Bug, ...] = (
    *(Bug(name, "duckdb", *fields) for name, fields in {**RULES, **QUERIES}.items()),
    *(Bug(name, "spark", *fields) for name, fields in {**SPARK, **TTL, **WIDE}.items()),
)
