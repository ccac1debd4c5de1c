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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.planted_changes import CHANGES
from tests.mutants.planted_queries import QUERIES
from tests.mutants.planted_rules import RULES
from tests.mutants.planted_spark import SPARK
from tests.mutants.planted_state import STATE
from tests.mutants.planted_streams import STREAMS
from tests.mutants.planted_ttl import TTL
from tests.mutants.planted_wide import WIDE
from tests.mutants.planting import Planted, changed
from tests.support.product import file_of


@dataclass(frozen=True)
class Bug:
    """In `symbol` (beside another name: `tests/support/product.py`) `old` becomes `new`, which makes
    `wrong` true. `planting.py` tells what the two may be.

    `tier` is to find it: 'duckdb', with queries of the operators `hint` alone, or 'spark', with
    the tests whose names hold `hint`, in the modules marked `hunts`.
    """

    id: str
    tier: str
    symbol: str
    beside: str
    old: str
    new: str
    wrong: str
    hint: str

    @property
    def file(self) -> Path:
        """The file of the package that defines the symbol."""
        return file_of(self.symbol.partition(".")[0], self.beside)

    def planted(self) -> str:
        """The text of that file with the bug."""
        text = self.file.read_text(encoding="utf-8")
        return changed(text, self.symbol, self.old, self.new)


def _bugs(tier: str, *tables: dict[str, Planted]) -> Iterator[Bug]:
    for name, (place, *fields) in ((name, bug) for table in tables for name, bug in table.items()):
        symbol, beside = (place, "") if isinstance(place, str) else place
        yield Bug(name, tier, symbol, beside, *fields)


BUGS = (
    *_bugs("duckdb", RULES, QUERIES),
    *_bugs("spark", CHANGES, SPARK, STATE, STREAMS, TTL, WIDE),
)
