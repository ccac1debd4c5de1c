"""Every unit of dbt-tests-adapter that makes sense for Spark, as its own test class."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

import pytest
from overrides import OVERRIDES

# The suite is dbt's: how it uses pytest is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

UNITS = Path(__file__).with_name("units.tsv")


def _classes() -> dict[str, type]:
    made = {}
    with UNITS.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            module = importlib.import_module(f"dbt.tests.adapter.{row['module']}")
            base = getattr(module, row["class"])
            name = f"Test_{row['module'].replace('.', '_')}__{row['class']}"
            bases = (OVERRIDES[row["class"]], base) if row["class"] in OVERRIDES else (base,)
            made[name] = type(name, bases, {"__module__": __name__, "__test__": True})
            if row["not_applicable"]:
                made[name] = pytest.mark.skip(reason=row["not_applicable"])(made[name])
    return made


globals().update(_classes())
