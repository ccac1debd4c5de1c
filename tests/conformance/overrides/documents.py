"""`dbt docs generate`: the catalog in Spark's words."""

from __future__ import annotations

import getpass
from unittest.mock import ANY

import pytest
from dbt.tests.adapter.basic import expected_catalog as expected
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, StatsItem, TableMetadata

from dbt_streamsql.adapter.catalog import STATS

_WORDS = {
    "id_type": "bigint",
    "text_type": "string",
    "time_type": "timestamp",
    "view_type": "view",
    "table_type": "table",
}

_KNOWN = ("rows", "bytes", "files", "last_change")


def _table_stats():
    """What the catalog tells of a table; how much that is, is for tests of ours."""
    items = {
        key: {"id": key, "label": label, "description": text, "value": ANY, "include": True}
        for key, (label, text) in STATS.items()
        if key in _KNOWN
    }
    return {**items, "has_stats": ANY}


def _in_our_words(catalog):
    """Views have no owner, and columns are counted from 0."""
    for relation in (*catalog["nodes"].values(), *catalog["sources"].values()):
        if relation["metadata"]["type"] == "view":
            relation["metadata"]["owner"] = None
        relation["columns"] = {
            name: {**column, "index": position}
            for position, (name, column) in enumerate(relation["columns"].items())
        }
    return catalog


class Generate:
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return _in_our_words(
            expected.base_expected_catalog(
                project,
                role=profile_user,
                model_stats=expected.no_stats(),
                seed_stats=_table_stats(),
                **_WORDS,
            )
        )


class References:
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return _in_our_words(
            expected.expected_references_catalog(
                project,
                role=profile_user,
                bigint_type="bigint",
                model_stats=_table_stats(),
                view_summary_stats=expected.no_stats(),
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
                for index, (column, type_) in enumerate(types.items())
            },
            stats={
                key: StatsItem(key, STATS[key][0], ANY, include=True, description=STATS[key][1])
                for key in (_KNOWN if kind == "table" else ())
            },
            unique_id=None,
        )


class RelationTypes:
    @pytest.mark.parametrize(
        ("node_name", "relation_type"),
        [
            ("seed.test.my_seed", "table"),
            ("model.test.my_table", "table"),
            ("model.test.my_view", "view"),
            ("model.test.my_materialized_view", "materialized_view"),
        ],
    )
    def test_relation_types_populate_correctly(self, docs, node_name, relation_type):
        super().test_relation_types_populate_correctly(docs, node_name, relation_type)


OVERRIDES: dict[str, type] = {
    "CatalogRelationTypes": RelationTypes,
    "BaseDocsGenerate": Generate,
    "BaseDocsGenReferences": References,
    "BaseGetCatalogForSingleRelation": SingleRelation,
}
