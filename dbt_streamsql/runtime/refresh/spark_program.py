"""The program of one view in one epoch, run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.runtime.core.row_expiry import Expiry
from dbt_streamsql.runtime.refresh.program_runner import ProgramRunner, Times
from dbt_streamsql.runtime.refresh.spark_relations import InputChange, SparkRelations
from dbt_streamsql.runtime.write.write_result import Outcome
from dbt_streamsql.runtime.write.writer import Writer


class RunsPrograms(Protocol):
    """Runs the program of one view over the changes of its inputs, and writes the result."""

    def run(self, plan: CompiledPlan) -> Outcome:
        """Error: `Mismatch` when the stored rows are not what they should be."""

    def close(self) -> None:
        """Release what was kept."""


Programs = Callable[[Mapping[str, InputChange], Writer, Times, Expiry], RunsPrograms]
"""Makes the runner of a job's program, from its inputs, its writer, the time of the view's last
epoch and of this one, and the rows of its inputs that have expired."""


@dataclass
class SparkProgram:
    """The program runner over Spark's relations."""

    reads: Mapping[str, InputChange]
    writer: Writer
    clock: Times
    ages: Expiry

    def __post_init__(self) -> None:
        self.relations = SparkRelations(self.reads, self.writer, self.ages)
        self.runner = ProgramRunner(self.relations, self.clock)

    def run(self, plan: CompiledPlan) -> Outcome:
        """Run the steps of a plan; returns what was written."""
        self.runner.run(plan)
        return self.relations.outcome

    def close(self) -> None:
        """Release what was kept, and plan queries as before."""
        self.relations.close()
