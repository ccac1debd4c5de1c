"""Contracts and constraints: Spark's types, and the statement that builds the checked table."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.constraints import fixtures, test_constraints


class Types:
    """Types as Spark names them: as text in a query, in a contract, and in an error."""

    @pytest.fixture
    def string_type(self):
        return "string"

    @pytest.fixture
    def int_type(self):
        return "int"

    @pytest.fixture
    def data_types(self, int_type, string_type):
        return [
            ["1", int_type, int_type],
            ["'1'", string_type, string_type],
            ["true", "boolean", "boolean"],
            ["timestamp '2013-11-03 00:00:00-07'", "timestamp", "timestamp"],
            ["timestamp_ntz '2013-11-03 00:00:00'", "timestamp_ntz", "timestamp_ntz"],
            ["date '2013-11-03'", "date", "date"],
            ["array('a', 'b', 'c')", "array<string>", "array<string>"],
            ["array(1, 2, 3)", "array<int>", "array<int>"],
            ["map('a', 1)", "map<string,int>", "map<string,int>"],
            ["named_struct('bar', 'baz')", "struct<bar:string>", "struct<bar:string>"],
            ["cast('1' as decimal(5, 2))", "decimal(5,2)", "decimal(5,2)"],
        ]


class TableTypes(Types):
    """The unit without its models: those of tables."""

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_wrong_order.sql": fixtures.my_model_wrong_order_sql,
            "my_model_wrong_name.sql": fixtures.my_model_wrong_name_sql,
            "constraints_schema.yml": fixtures.model_schema_yml,
        }


class Statement:
    """The query that builds the table has the contract's columns in the contract's order.

    Constraints stand in no statement: they are verified on the staged rows before those are
    published, as `BaseConstraintsRollback` shows.
    """

    @pytest.fixture(autouse=True)
    def query(self, monkeypatch):
        original = test_constraints.read_file

        def read(*path):
            text = original(*path)
            return text[text.index("select `id`") :] if "run" in path else text

        monkeypatch.setattr(test_constraints, "read_file", read)

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return """
select `id`, `color`, `date_day` from (
    -- depends_on: <foreign_key_model_identifier>
    select 'blue' as color, 1 as id, '2019-01-01' as date_day
) as model_subq
"""


class QuotedColumn(Statement):
    @pytest.fixture(scope="class")
    def models(self):
        # What a user writes in a check is for Spark to read.
        schema = fixtures.model_quoted_column_schema_yml.replace('"from"', "`from`")
        return {
            "my_model.sql": fixtures.my_model_with_quoted_column_name_sql,
            "constraints_schema.yml": schema,
        }

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return """
select `id`, `from`, `date_day` from (
    select 'blue' as `from`, 1 as id, '2019-01-01' as date_day
) as model_subq
"""


class Rollback:
    @pytest.fixture(scope="class")
    def expected_error_messages(self):
        return ["STREAMSQL.CONSTRAINT_VIOLATED", "not_null", "id"]


class TableHeader:
    """The unit without its models: those of tables."""

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model_contract_sql_header.sql": fixtures.my_model_contract_sql_header_sql,
            "constraints_schema.yml": fixtures.model_contract_header_schema_yml,
        }


OVERRIDES: dict[str, type] = {
    "BaseConstraintsColumnsEqual": TableTypes,
    "BaseTableConstraintsColumnsEqual": Types,
    "BaseViewConstraintsColumnsEqual": Types,
    "BaseIncrementalConstraintsColumnsEqual": Types,
    "BaseConstraintsRuntimeDdlEnforcement": Statement,
    "BaseIncrementalConstraintsRuntimeDdlEnforcement": Statement,
    "BaseModelConstraintsRuntimeEnforcement": Statement,
    "BaseConstraintQuotedColumn": QuotedColumn,
    "BaseConstraintsRollback": Rollback,
    "BaseIncrementalConstraintsRollback": Rollback,
    "BaseContractSqlHeader": TableHeader,
}
