"""Declared keys of tables: what a change of one table says about the rows of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName


@dataclass(frozen=True)
class TableKey:
    """A key of `table`, by full names.

    Without `references` no two rows have the same value in `column` (a primary or unique key).
    With it each row has NULL there, or the value of one row of the table `references` in its
    unique column `to` (a foreign key). Both hold at each moment at which an epoch may read.
    """

    table: str
    column: str
    references: str = ""
    to: str = ""

    def __str__(self) -> str:
        if self.references:
            return f"{self.table}.{self.column} references {self.references}.{self.to}"
        return f"{self.table}.{self.column} is unique"

    def as_data(self) -> dict[str, str]:
        """For JSON."""
        return {name: value for name, value in asdict(self).items() if value}


def keys_of(given: Iterable[TableKey | Mapping[str, Any]], catalog: str) -> tuple[TableKey, ...]:
    """Keys with full names of tables, without repetitions. Error: CONFIG_INVALID."""
    found = []
    for each in given:
        key = each if isinstance(each, TableKey) else TableKey(**each)
        if not key.column or bool(key.references) != bool(key.to):
            raise StreamSqlError(
                "CONFIG_INVALID",
                "a key needs a column; one that references a table, a column there too",
                given=str(key.as_data()),
                allowed="table and column, or table, column, references and to",
                place=Place(key.table),
            )
        names = (
            str(TableName.parse(name, catalog)) if name else ""
            for name in (key.table, key.references)
        )
        table, references = names
        found.append(TableKey(table, key.column, references, key.to))
    # In one order: the same keys are the same definition.
    return tuple(sorted(set(found), key=str))
