"""Refresh a view over small inputs by comparison: recompute its query and compare the rows.

The rows of a small view are kept in the process and compared here; those of a bigger one are
compared by Spark. Only rows that differ are written, so readers see the same change as if it had
been computed from the changes of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.core.stored_rows import COPIES, PLACE_IN_NUMBERS
from dbt_streamsql.runtime.spark.shared_relations import DriverRows
from dbt_streamsql.runtime.write import driver_writer
from dbt_streamsql.runtime.write.write_result import Outcome, TooLongRowsError
from dbt_streamsql.runtime.write.writer import Writer
from dbt_streamsql.storage.arrow_rows import TooManyBytesError
from dbt_streamsql.storage.conf import over_few_rows


@dataclass
class Comparison:
    """Replaces the program of a view. `query` gives all its stored columns."""

    writer: Writer
    query: str

    def run(self, plan: CompiledPlan) -> Outcome:  # noqa: ARG002 - the signature of a program
        """Compute the rows, and write the difference. Error: `Mismatch` when it is too big."""
        try:
            if self.writer.live <= self.writer.tuning.held_rows:
                return self._here()
            with over_few_rows(self.writer.spark):
                change = self.writer.local.fetch(self._difference())
        except TooManyBytesError as error:
            raise TooLongRowsError(error) from error
        return driver_writer.different(self.writer, change)

    def _here(self) -> Outcome:
        writer = self.writer
        stored = writer.rows()
        with over_few_rows(writer.spark):
            wanted = writer.local.fetch(f"SELECT {self._names} FROM ({self.query})")
        found = stored.difference(wanted.data)
        gone = stored.rows.take(found.lost)
        outcome, come = driver_writer.exchanged(
            writer, DriverRows(found.change, wanted.schema), gone
        )
        after = stored.after(found.lost, come, outcome.file) if outcome.changed else stored
        return replace(outcome, stored=after)

    @property
    def _names(self) -> str:
        return ", ".join(quote(name) for name in self.writer.columns)

    def _difference(self) -> str:
        """The rows that one side has more often than the other, as input of
        `driver_writer.different`."""
        names, place = self._names, PLACE_IN_NUMBERS
        nowhere = ", ".join(f"NULL AS {name}" for name in place)
        here = ", ".join(f"{value} AS {name}" for name, value in place.items())
        found = ", ".join(f"max({name}) AS {name}" for name in place)
        return (
            f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT}, "
            f"count_if({WEIGHT} < 0) AS {COPIES}, {found} "
            f"FROM (SELECT {names}, 1L AS {WEIGHT}, {nowhere} FROM ({self.query}) UNION ALL "
            f"SELECT {names}, -1L AS {WEIGHT}, {here} FROM {driver_writer.stored(self.writer)}) "
            f"GROUP BY {names} HAVING sum({WEIGHT}) <> 0"
        )

    def close(self) -> None:
        """Release what was kept."""
        self.writer.local.close()
