"""Types of which one value equals at most one value of the other."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.algebra.schema import Column, are_one_to_one

PAIRS = {
    ("string", "string"): True,
    ("string collate UTF8_LCASE", "string"): False,
    ("int", "bigint"): True,
    ("tinyint", "int"): True,
    ("int", "string"): False,
    ("date", "string"): False,
    ("double", "bigint"): False,
    ("decimal(10,2)", "decimal(12,4)"): True,
    ("decimal(38,0)", "bigint"): True,
    ("decimal(38,18)", "bigint"): True,
    ("decimal(38,20)", "bigint"): False,
    ("decimal(38,0)", "decimal(38,10)"): False,
}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_it_does_not_matter_which_column_comes_first(one, other):
    expected = PAIRS[one, other]
    assert are_one_to_one(Column("a", one), Column("b", other)) is expected
    assert are_one_to_one(Column("b", other), Column("a", one)) is expected
