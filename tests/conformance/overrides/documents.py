"""`dbt docs generate`: the catalog in Spark's words."""

from __future__ import annotations

import getpass

import pytest
from dbt.tests.adapter.basic import expected_catalog as expected
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata

_WORDS = {
    "id_type": "bigint",
    "text_type": "string",
    "time_type": "timestamp",
    "view_type": "view",
    "table_type": "table",
}


def _without_owners_of_views(catalog):
    for node in catalog["nodes"].values():
        if node["metadata"]["type"] == "view":
            node["metadata"]["owner"] = None
    return catalog


class Generate:
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return _without_owners_of_views(
            expected.base_expected_catalog(
                project, role=profile_user, model_stats=expected.no_stats(), **_WORDS
            )
        )


class References:
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return _without_owners_of_views(
            expected.expected_references_catalog(
                project,
                role=profile_user,
                bigint_type="bigint",
                model_stats=expected.no_stats(),
                **_WORDS,
            )
        )


class SingleRelation:
    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project):
        return self.expected(project, "my_seed", "table")

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project):
        return self.expected(project, "my_view_model", "view")

    def expected(self, project, name, kind):
        types = {
            "id": "bigint",
            "first_name": "string",
            "email": "string",
            "ip_address": "string",
            "updated_at": "timestamp",
        }
        return CatalogTable(
            metadata=TableMetadata(
                type=kind,
                schema=project.test_schema,
                name=name,
                database=project.database,
                comment=None,
                owner=getpass.getuser() if kind == "table" else None,
            ),
            columns={
                column: ColumnMetadata(type=type_, index=index, name=column, comment=None)
                for index, (column, type_) in enumerate(types.items(), 1)
            },
            stats={},
            unique_id=None,
        )


OVERRIDES: dict[str, type] = {
    "BaseDocsGenerate": Generate,
    "BaseDocsGenReferences": References,
    "BaseGetCatalogForSingleRelation": SingleRelation,
}
