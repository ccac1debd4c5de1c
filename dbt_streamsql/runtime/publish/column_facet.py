"""OpenLineage's facet `columnLineage`: of which columns each column of a view is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dbt_streamsql.plan.algebra.lineage import Lineage, Origin
from dbt_streamsql.plan.algebra.relational import CLOCK

if TYPE_CHECKING:
    from openlineage.client.facet_v2 import column_lineage_dataset


def column_facet(
    known: Lineage, dataset: Callable[[str], tuple[str, str]], producer: str
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """`dataset`: the namespace and the name of a table."""
    from openlineage.client.facet_v2 import column_lineage_dataset as facets

    def field(column: Origin, ways: Iterable[tuple[str, str]]) -> facets.InputField:
        made = [facets.Transformation(kind, subtype) for kind, subtype in ways]
        return facets.InputField(*dataset(column[0]), column[1], made)

    fields = {
        name: facets.Fields(
            [
                field(column, [("DIRECT", kind.name)])
                for column, kind in sorted(origins.items())
                if column[0] != CLOCK
            ]
        )
        for name, origins in known.columns.items()
    }
    ways: dict[Origin, list[tuple[str, str]]] = {}
    for subtype, columns in sorted(known.indirect.items()):
        for column in columns:
            ways.setdefault(column, []).append(("INDIRECT", subtype))
    decides = [field(column, told) for column, told in sorted(ways.items()) if column[0] != CLOCK]
    return facets.ColumnLineageDatasetFacet(fields, decides, producer=producer)
