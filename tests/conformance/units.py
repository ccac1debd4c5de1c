"""The units of dbt-tests-adapter."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """A class of the suite; `not_applicable` says why Spark cannot have what it tests."""

    module: str
    name: str
    not_applicable: str

    @property
    def group(self) -> str:
        return self.module.partition(".")[0]

    @property
    def test(self) -> str:
        """The name of its test class here."""
        return f"Test_{self.module.replace('.', '_')}__{self.name}"


def _read() -> dict[str, Unit]:
    with Path(__file__).with_name("units.tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        units = [Unit(row["module"], row["class"], row["not_applicable"]) for row in rows]
    return {unit.test: unit for unit in units}


UNITS = _read()
"""By the name of the test class."""
