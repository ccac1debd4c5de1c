"""Every unit of dbt-tests-adapter that makes sense for Spark, as its own test class."""

from __future__ import annotations

import importlib

import pytest

from tests.conformance.overrides import OVERRIDES
from tests.conformance.units import UNITS, Unit

# The suite is dbt's: how it uses pytest is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


def _class(unit: Unit) -> type:
    base = getattr(importlib.import_module(f"dbt.tests.adapter.{unit.module}"), unit.name)
    bases = (OVERRIDES[unit.name], base) if unit.name in OVERRIDES else (base,)
    made = type(unit.test, bases, {"__module__": __name__, "__test__": True})
    if unit.not_applicable:
        made = pytest.mark.skip(reason=unit.not_applicable)(made)
    return made


globals().update({name: _class(UNITS[name]) for name in sorted(UNITS)})
