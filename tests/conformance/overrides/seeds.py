"""Seeds: Spark's names of types."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.empty import test_empty
from dbt.tests.adapter.simple_seed import fixtures


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
        return tmp_path_factory.mktemp("seeds")


OVERRIDES: dict[str, type] = {
    "BaseSimpleSeedColumnOverride": ColumnOverride,
    "BaseTestEmptySeedFlag": EmptyFlag,
    "BaseSeedSpecificFormats": SpecificFormats,
}
