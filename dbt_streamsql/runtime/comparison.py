"""A small view is brought up to date by its query: computed anew, compared with what is stored.

Only where the rows differ they are written, so that readers see the same change as if it had been
computed from those of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.runtime import write_driver
from dbt_streamsql.runtime.outcome import Outcome
from dbt_streamsql.runtime.shared import fetch
from dbt_streamsql.runtime.write import Writer

_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass
class Comparison:
    """Stands for the program of a view: `query` gives all its stored columns."""

    writer: Writer
    query: str

    def run(self, plan: CompiledPlan) -> Outcome:  # noqa: ARG002 - that of a program
        """Compute the rows, and write the difference."""
        spark = self.writer.spark
        # Every stage would be a job of its own, which for small inputs costs more than it can win.
        spark.conf.set(_ADAPTIVE, False)
        try:
            return write_driver.replace(self.writer, fetch(spark, self.query), "", ())
        finally:
            spark.conf.set(_ADAPTIVE, True)

    def close(self) -> None:
        """Let go of what was kept."""
        self.writer.local.close()
