"""Ephemeral models: the statement that they end in, as Spark is sent it."""

from __future__ import annotations

import re
from pathlib import Path

from dbt.tests.util import check_relations_equal, run_dbt


def _words(text: str) -> str:
    return "".join(re.sub(r"\d+", "", text).split())


def _sent(model: str) -> str:
    return _words((Path("target/run/test/models") / f"{model}.sql").read_text())


class Multi:
    def test_ephemeral_multi(self, project):
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for model in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", model])
        schema = project.test_schema
        assert _sent("double_dependent") == _words(
            f"create or replace view `lake`.`{schema}`.`double_dependent` as"
            f" with __dbt__cte__base as (select * from {schema}.seed),"
            " __dbt__cte__base_copy as (select * from __dbt__cte__base)"
            " -- base_copy just pulls from base. Make sure the listed"
            " -- graph of CTEs all share the same dbt_cte__base cte"
            " select * from __dbt__cte__base where gender = 'Male'"
            " union all select * from __dbt__cte__base_copy where gender = 'Female'"
        )


class Nested:
    def test_ephemeral_nested(self, project):
        assert len(run_dbt(["run"])) == 2
        schema = project.test_schema
        assert _sent("root_view") == _words(
            f"create or replace view `lake`.`{schema}`.`root_view` as"
            " with __dbt__cte__ephemeral_level_two as"
            f" (select * from `lake`.`{schema}`.`source_table`),"
            " __dbt__cte__ephemeral as (select * from __dbt__cte__ephemeral_level_two)"
            " select * from __dbt__cte__ephemeral"
        )


OVERRIDES: dict[str, type] = {"BaseEphemeralMulti": Multi, "BaseEphemeralNested": Nested}
