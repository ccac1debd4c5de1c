"""A view over small inputs is brought up to date by its query, computed anew and compared.

Spark compares it with what is stored. Only the rows that differ come to the driver and are
written, so that readers see the same change as if it had been computed from those of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.schema import WEIGHT
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime import write_driver
from dbt_streamsql.runtime.outcome import Outcome
from dbt_streamsql.runtime.shared import fetch
from dbt_streamsql.runtime.write import Writer
from dbt_streamsql.storage.conf import over_few_rows


@dataclass
class Comparison:
    """Stands for the program of a view: `query` gives all its stored columns."""

    writer: Writer
    query: str

    def run(self, plan: CompiledPlan) -> Outcome:  # noqa: ARG002 - that of a program
        """Compute the rows, and write the difference. Error: `Mismatch` when it is too big."""
        spark = self.writer.spark
        with over_few_rows(spark):
            change = fetch(spark, self._difference())
        return write_driver.different(self.writer, change)

    def _difference(self) -> str:
        """The rows that one side has more often than the other, as `write_driver.different` takes
        them."""
        names = ", ".join(quote(name) for name in self.writer.columns)
        place = write_driver.PLACE_IN_NUMBERS
        nowhere = ", ".join(f"NULL AS {name}" for name in place)
        here = ", ".join(f"{value} AS {name}" for name, value in place.items())
        found = ", ".join(f"max({name}) AS {name}" for name in place)
        return (
            f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT}, "
            f"count_if({WEIGHT} < 0) AS {write_driver.COPIES}, {found} "
            f"FROM (SELECT {names}, 1L AS {WEIGHT}, {nowhere} FROM ({self.query}) UNION ALL "
            f"SELECT {names}, -1L AS {WEIGHT}, {here} FROM {write_driver.stored(self.writer)}) "
            f"GROUP BY {names} HAVING sum({WEIGHT}) <> 0"
        )

    def close(self) -> None:
        """Let go of what was kept."""
        self.writer.local.close()
