"""What a unit leaves open to the adapter, or expects in PostgreSQL's words: one file a group.

A class here stands before the unit among the bases of the test class. What it asserts is what
the unit asserts.
"""

from __future__ import annotations

from tests.conformance.overrides import (
    constraints,
    documents,
    ephemeral,
    functions,
    hooks,
    relations,
    seeds,
    snapshots,
    unit_tests,
    utils,
)

OVERRIDES: dict[str, type] = {
    **constraints.OVERRIDES,
    **documents.OVERRIDES,
    **ephemeral.OVERRIDES,
    **functions.OVERRIDES,
    **hooks.OVERRIDES,
    **relations.OVERRIDES,
    **seeds.OVERRIDES,
    **snapshots.OVERRIDES,
    **unit_tests.OVERRIDES,
    **utils.OVERRIDES,
}
