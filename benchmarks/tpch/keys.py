"""The keys of TPC-H's tables (specification, 1.4.2), those of one column."""

from __future__ import annotations

from dbt_streamsql.plan.definition.table_key import TableKey

_UNIQUE = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "orders": "o_orderkey",
}
_REFERENCES = {
    ("nation", "n_regionkey"): "region",
    ("supplier", "s_nationkey"): "nation",
    ("customer", "c_nationkey"): "nation",
    ("partsupp", "ps_partkey"): "part",
    ("partsupp", "ps_suppkey"): "supplier",
    ("orders", "o_custkey"): "customer",
    ("lineitem", "l_orderkey"): "orders",
    ("lineitem", "l_partkey"): "part",
    ("lineitem", "l_suppkey"): "supplier",
}


def declared_keys(schema: str) -> list[TableKey]:
    """The keys of the tables of a schema."""
    unique = [TableKey(f"{schema}.{table}", column) for table, column in _UNIQUE.items()]
    foreign = [
        TableKey(f"{schema}.{table}", column, f"{schema}.{parent}", _UNIQUE[parent])
        for (table, column), parent in _REFERENCES.items()
    ]
    return unique + foreign
