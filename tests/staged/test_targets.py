"""Every check of `contract.py` on every kind of target."""

from __future__ import annotations

import contract
import pytest
from contract import Target

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("check", contract.CHECKS)
def test_iceberg(engine, schema, warehouse, check):
    target = Target(engine, "lake", schema, "iceberg", str(warehouse / schema))
    contract.CHECKS[check](target)
