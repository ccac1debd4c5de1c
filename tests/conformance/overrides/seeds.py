"""Seeds: Spark's names of types."""

from __future__ import annotations

from pathlib import Path

import pytest
from dbt.tests.adapter.empty import test_empty
from dbt.tests.adapter.simple_seed import fixtures
from dbt.tests.util import get_connection, run_dbt

from tests.support import spark_way


class ColumnOverride:
    """An integer of a CSV file is a bigint here, a moment a timestamp."""

    @pytest.fixture(scope="class")
    def models(self):
        properties = fixtures.properties__schema_yml
        properties = properties.replace("type: integer", "type: bigint")
        return {"schema.yml": properties.replace("timestamp without time zone", "timestamp")}

    @staticmethod
    def seed_enabled_types():
        return {"seed_id": "string", "birthday": "date"}

    @staticmethod
    def seed_tricky_types():
        return dict.fromkeys(("seed_id_str", "looks_like_a_bool", "looks_like_a_date"), "string")


class EmptyFlag:
    """`dbt seed` of dbt 1.11 has no `--empty` yet; `dbt build` has, and seeds obey it."""

    @pytest.fixture(autouse=True)
    def built(self, monkeypatch):
        original = test_empty.run_dbt

        def run(arguments):
            if arguments == ["seed", "--empty"]:
                arguments = ["build", "--empty", "--resource-type", "seed"]
            return original(arguments)

        monkeypatch.setattr(test_empty, "run_dbt", run)


class SpecificFormats:
    """The unit writes a big file before it reads it."""

    @pytest.fixture(scope="module")
    def test_data_dir(self, tmp_path_factory):
        return tmp_path_factory.mktemp("seeds") / "data"


class ByteOrderMark:
    """The unit's file lies beside the unit."""

    @pytest.fixture(scope="class")
    def project(self, project):
        project.test_dir = str(Path(fixtures.__file__).parent)
        return project


class WrongDelimiter:
    def test_seed_with_wrong_delimiter(self, project):
        message = run_dbt(["seed"], expect_pass=False).results[0].message
        assert "check the seed's `delimiter`" in message


class FullRefreshFlag:
    """The seed is replaced under what reads it: nothing is dropped with it."""

    def test_simple_seed_full_refresh_flag(self, project):
        self._build_relations_for_test(project)
        refreshed = run_dbt(["seed", "--full-refresh"])
        self._check_relation_end_state(run_result=refreshed, project=project, exists=True)


class FullRefreshOn:
    def test_simple_seed_full_refresh_config(self, project):
        self._build_relations_for_test(project)
        self._check_relation_end_state(run_result=run_dbt(["seed"]), project=project, exists=True)


class Uppercase:
    """Nothing is case-blind here that a database could be told to be."""

    @pytest.fixture(scope="class")
    def dbt_profile_target(self, spark, warehouse):
        base = {"type": "streamsql", "warehouse": str(warehouse), "threads": 4}
        return {**base, **spark_way.profile()}


class EmptyModels:
    """What there is, asked of dbt: Spark has no information schema."""

    @pytest.fixture(scope="class")
    def project(self, project):
        def tables():
            with get_connection(project.adapter):
                where = project.adapter.Relation.create(project.database, project.test_schema)
                found = project.adapter.list_relations_without_caching(where)
            return {relation.identifier: str(relation.type) for relation in found}

        project.get_tables_in_schema = tables
        return project


OVERRIDES: dict[str, type] = {
    "BaseSimpleSeedColumnOverride": ColumnOverride,
    "BaseTestEmptySeedFlag": EmptyFlag,
    "BaseSeedSpecificFormats": SpecificFormats,
    "BaseSimpleSeedWithBOM": ByteOrderMark,
    "BaseSeedWithWrongDelimiter": WrongDelimiter,
    "BaseBasicSeedTests": FullRefreshFlag,
    "BaseSeedConfigFullRefreshOn": FullRefreshOn,
    "BaseSimpleCopyUppercase": Uppercase,
    "EmptyModelsArentRunBase": EmptyModels,
}
