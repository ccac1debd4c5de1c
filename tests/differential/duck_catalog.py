"""The compiler's questions (`plan.catalog.Catalog`) answered by a DuckDB connection, in Spark's types.

The mapping back is sound for the types of `duck_grammar.TABLES`: DuckDB's HUGEINT arises from sums
of integers alone, its widest decimals from sums of decimals alone.
"""

from __future__ import annotations

import duckdb
import sqlglot
from sqlglot import exp

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName
from tests.differential.duck_dialect import to_duck
from tests.support.product import AGGREGATES, GENERATORS, VOLATILE, WINDOWS

_SCALARS = """
    abs array array_contains array_distinct array_size ascii base64 bigint bin boolean
    cardinality ceil coalesce concat concat_ws date date_add date_sub date_trunc datediff day
    dayofmonth decimal double element_at exp filter floor format_number from_json get greatest
    hash if ifnull initcap int isnotnull isnull least left length ln log lower lpad ltrim map md5
    mod month named_struct nanvl negative nullif nvl nvl2 pmod pow quarter repeat replace reverse
    right round rpad rtrim sequence sha2 sign size slice sort_array split sqrt string struct
    substr substring timestamp to_date to_json transform trim trunc try_cast try_divide upper
    weekday when xxhash64 year zeroifnull
"""
_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "HUGEINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "BLOB": "binary",
    '"NULL"': "void",
}


def spark_type(duck: str) -> str:
    """DuckDB's type text as Spark's `simpleString`: `STRUCT(a INTEGER)[]` -> `array<struct<a:int>>`."""
    return _spark_type(exp.DataType.build(duck, dialect="duckdb")) if duck != '"NULL"' else "void"


def _spark_type(kind: exp.DataType) -> str:
    name = kind.this.name
    if name in {"ARRAY", "LIST"}:
        return f"array<{_spark_type(kind.expressions[0])}>"
    if name == "STRUCT":
        fields = (f"{field.name}:{_spark_type(field.args['kind'])}" for field in kind.expressions)
        return f"struct<{','.join(fields)}>"
    if name == "DECIMAL":
        precision, scale = (int(part.name) for part in kind.expressions)
        # A sum: DuckDB's is as wide as can be, Spark's ten digits wider than its argument (10, 2).
        return f"decimal({20 if (precision, scale) == (38, 2) else precision},{scale})"
    duck = kind.sql(dialect="duckdb")
    duck = {"INT": "INTEGER", "TEXT": "VARCHAR", "INT128": "HUGEINT"}.get(duck, duck)
    if duck not in _PLAIN:
        raise StreamSqlError("INTERNAL", "a type without a Spark type", given=duck)
    return _PLAIN[duck]


class DuckCatalog:
    """`tables` are the inputs by name; every query is asked of DuckDB once."""

    default_catalog = "lake"

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tables: dict[str, TableInfo]
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._schemas: dict[str, tuple[Column, ...]] = {}

    def table(self, name: TableName) -> TableInfo:
        """TABLE_MISSING when it is none of the given ones."""
        found = self._tables.get(str(name).lower())
        if found is None:
            raise StreamSqlError("TABLE_MISSING", f"{name} does not exist")
        return found

    def schema(self, sql: str) -> tuple[Column, ...]:
        """The columns of a Spark query in Spark's types; SQL_INVALID when DuckDB refuses it."""
        if sql not in self._schemas:
            try:
                text = to_duck(sql)
                rows = self._connection.execute(f"DESCRIBE {text}").fetchall()
            except (duckdb.Error, sqlglot.errors.SqlglotError) as error:
                raise StreamSqlError(
                    "SQL_INVALID", f"DuckDB refuses: {error}", given=sql
                ) from error
            sure = self._never_null(sqlglot.parse_one(sql, dialect="spark"))
            self._schemas[sql] = tuple(
                Column(row[0], spark_type(row[1]), position not in sure)
                for position, row in enumerate(rows)
            )
        return self._schemas[sql]

    def same_columns(self, sql: str, other: str) -> None:
        """`other` says the same as `sql` in a way that DuckDB does not read."""
        self._schemas[other] = self.schema(sql)

    def functions(self) -> frozenset[str]:
        """The functions that the grammar uses, and all whose kind the compiler knows."""
        return frozenset(_SCALARS.split()) | AGGREGATES | GENERATORS | WINDOWS | VOLATILE

    def loses_overflow(self) -> bool:
        return False

    def _never_null(self, tree: exp.Expr) -> frozenset[int]:
        """Positions of output columns that Spark knows to hold no NULL: what is plain to see."""
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        if isinstance(tree, exp.SetOperation):
            return self._never_null(tree.left) & self._never_null(tree.right)
        if not isinstance(tree, exp.Select) or tree.args.get("laterals") or tree.find(exp.With):
            return frozenset()
        if tree.args.get("group") is not None and _has_grouping_sets(tree.args["group"]):
            return frozenset()
        known = self._sure_columns(tree)
        sure: set[int] = set()
        for position, item in enumerate(tree.expressions):
            value = item.unalias()
            if isinstance(value, exp.Column):
                if (value.table, value.name) in known:
                    sure.add(position)
            elif isinstance(value, exp.Count | exp.Literal):
                sure.add(position)
            elif isinstance(value, exp.Star) or item.find(exp.Star):
                return frozenset()
        return frozenset(sure)

    def _sure_columns(self, select: exp.Select) -> set[tuple[str, str]]:
        from_ = select.args.get("from_") or select.args.get("from")
        joins = select.args.get("joins") or []
        if from_ is None or any(join.side or join.args.get("using") for join in joins):
            return set()
        known: set[tuple[str, str]] = set()
        for source in (from_.this, *(join.this for join in joins)):
            alias, columns = source.alias_or_name, ()
            if isinstance(source, exp.Table) and source.args.get("db"):
                info = self._tables.get(f"{source.catalog}.{source.db}.{source.name}".lower())
                columns = [c.name for c in info.columns if not c.nullable] if info else ()
            elif isinstance(source, exp.Subquery) and isinstance(source.unnest(), exp.Select):
                inner = source.unnest()
                sure = self._never_null(inner)
                columns = [inner.expressions[p].alias_or_name for p in sure]
            known |= {(alias, name) for name in columns}
            if not joins:
                known |= {("", name) for name in columns}
        return known


def _has_grouping_sets(group: exp.Group) -> bool:
    return any(group.find_all(exp.Cube, exp.Rollup, exp.GroupingSets)) or any(
        group.args.get(key) for key in ("cube", "rollup", "grouping_sets")
    )
