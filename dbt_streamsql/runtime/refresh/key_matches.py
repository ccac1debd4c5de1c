"""The rows that are looked up in a table, where declared keys say that most are in a change.

A row of the parent O is identified by its key k, and each row of the child L has the k of one row
of O (a foreign key). With the consolidated changes dO and dL of an epoch, the rows with some keys:

- In O: if dO has k, then its deleted row is the one before the epoch and its inserted row the one
  after it, since k is unique. Only the other keys are looked up.
- In L: if dO only deletes k, no child is left, so the children before the epoch are the deleted
  ones of dL. If dO only inserts k, there was no child, so those after the epoch are the inserted
  ones of dL. Only a k that dO both deletes and inserts, or does not have, is looked up.

A k of dO without any child in dL is looked up too: that costs little where it is rare, and it
repairs most of what a writer does who breaks the promise for a while, by committing the deletion
of a parent before that of its children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructField, StructType

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.program.steps import Lookup
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark.join_conditions import RANGED
from dbt_streamsql.runtime.spark.scratch import TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows

_EXACT = tuple(kind() for kind in RANGED)
"""Types whose values are equal for Arrow if they are for Spark."""


@dataclass(frozen=True)
class KeyMatches:
    """The rows of a lookup.

    `own` and `parent` are the consolidated changes of the table and of the one that it references
    ('' for a unique column), `asking` the rows that ask, all computed once; `columns`: of `own`.
    """

    lookup: Lookup
    own: str
    parent: str
    asking: str
    columns: tuple[str, ...]

    @property
    def missing(self) -> str:
        """The keys that have to be looked up in the table, each once."""
        key, column = quote(self.lookup.key), quote(self.lookup.column)
        asked = f"SELECT DISTINCT {key} AS k FROM {self.asking} WHERE {key} IS NOT NULL"
        known = f"SELECT {column} AS k FROM {self.own} WHERE {column} IS NOT NULL"
        absent = f"NOT EXISTS (SELECT 1 FROM ({known}) o WHERE o.k = a.k)"
        if self.lookup.by == "references":
            once = f"SELECT k FROM ({changed_keys(self.parent, self.lookup.to)}) WHERE NOT updated"
            absent += f" OR NOT EXISTS (SELECT 1 FROM ({once}) p WHERE p.k = a.k)"
        return f"SELECT a.k FROM ({asked}) a WHERE {absent}"

    def missing_rows(self, kept: Callable[[str], TempRelation | None]) -> DriverRows | None:
        """The same keys without a Spark job; None where the driver does not have the changes."""
        by_parent = self.lookup.by == "references"
        sides = [(self.asking, self.lookup.key), (self.own, self.lookup.column)]
        sides += [(self.parent, self.lookup.to)] if by_parent else []
        found = [_in_driver(kept(frame), column) for frame, column in sides]
        columns = [each for each in found if each is not None]
        kinds = {kind.simpleString(): kind for _, kind in columns}
        if len(columns) < len(found) or len(kinds) != 1:
            return None
        (asked, kind), (own, _) = columns[:2]
        keys = pc.unique(asked)
        covered = pc.is_in(keys, value_set=own)
        if by_parent:
            parent = kept(self.parent)
            assert parent is not None
            assert parent.rows is not None
            updated = updated_keys(parent.rows, self.lookup.to)
            changed = pc.is_in(keys, value_set=columns[2][0])
            once = pc.and_(changed, pc.invert(pc.is_in(keys, value_set=updated)))
            covered = pc.and_(covered, once)
        lacking = keys.filter(pc.invert(covered))
        return DriverRows(pa.table({"k": lacking}), StructType([StructField("k", kind)]))

    def rows(self, table: str, missing: str) -> str:
        """The rows at the moment of the lookup.

        `table`: the rows of the table at that moment; `missing`: the kept frame of the keys that
        have to be looked up ('': there are none).
        """
        names = ", ".join(f"r.{quote(column)}" for column in self.columns)
        key, sign = f"r.{quote(self.lookup.column)}", self.lookup.moment == "after"
        copies = f"LATERAL VIEW explode(sequence(1L, abs(r.{WEIGHT}))) c AS n"
        own = f"{self.own} r {copies} WHERE r.{WEIGHT} {'>' if sign else '<'} 0"
        if not missing:
            return f"(SELECT {names} FROM {own})"
        hint = "/*+ BROADCAST(k) */"
        changed = (
            f"SELECT {hint} {names} FROM (SELECT r.* FROM {own}) r "
            f"LEFT ANTI JOIN {missing} k ON {key} = k.k"
        )
        found = f"SELECT {hint} {names} FROM {table} r LEFT SEMI JOIN {missing} k ON {key} = k.k"
        return f"({changed} UNION ALL {found})"


def changed_keys(change: str, column: str) -> str:
    """The keys of a change, and whether it both deletes and inserts a row of the key."""
    key = quote(column)
    return (
        f"SELECT {key} AS k, min({WEIGHT}) < 0 AND max({WEIGHT}) > 0 AS updated FROM {change} "
        f"WHERE {key} IS NOT NULL GROUP BY {key}"
    )


def updated_keys(change: DriverRows, column: str) -> Any:
    """The keys of which a change in the driver both deletes and inserts a row."""
    keys = change.data.group_by(column).aggregate([(WEIGHT, "min"), (WEIGHT, "max")])
    both = pc.and_(pc.less(keys[f"{WEIGHT}_min"], 0), pc.greater(keys[f"{WEIGHT}_max"], 0))
    return keys.filter(both)[column].combine_chunks().drop_null()


def _in_driver(kept: TempRelation | None, column: str) -> tuple[Any, DataType] | None:
    """The values of a column of rows that the driver has, without NULLs, and its type."""
    if kept is None or kept.rows is None:
        return None
    kind = kept.rows.schema[column].dataType
    values = kept.rows.data[column].combine_chunks().drop_null()
    return (values, kind) if kind in _EXACT else None
