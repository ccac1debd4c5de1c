"""Macros of `dbt.type_…`, and the abstract units over them with something to compare."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.utils.data_types import test_type_bigint, test_type_float, test_type_int

_COLUMN_TYPES = """
seeds:
  - name: expected
    config: {{column_types: {{{column}: {type}}}}}
"""


class Pair:
    """What an abstract unit compares: the relations of a concrete one."""

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "expected.sql": test_type_bigint.models__expected_sql,
            "actual.sql": test_type_bigint.models__actual_sql,
        }


class Float:
    """A number of a CSV file is a double here, where `type_float` is a float."""

    @pytest.fixture(scope="class")
    def seeds(self):
        return {
            "expected.csv": test_type_float.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPES.format(column="float_col", type="float"),
        }


class Int:
    """An integer of a CSV file is a bigint here, where `type_int` is an int."""

    @pytest.fixture(scope="class")
    def seeds(self):
        return {
            "expected.csv": test_type_int.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPES.format(column="int_col", type="int"),
        }


OVERRIDES: dict[str, type] = {
    "BaseArrayUtils": Pair,
    "BaseDataTypeMacro": Pair,
    "BaseTypeFloat": Float,
    "BaseTypeInt": Int,
}
