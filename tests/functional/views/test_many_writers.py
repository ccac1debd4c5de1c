"""One table that six programs write in turns: views over it stay what their queries are."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from dbt_streamsql.storage.java import is_connect
from tests.support import foreign_writers
from tests.support.catalogs import configured

pytestmark = [pytest.mark.spark, pytest.mark.processes]

VIEWS = {
    "rows": "SELECT k, v, n FROM {t} WHERE n % 3 <> 1",
    "groups": "SELECT v, count(*) AS c, sum(n) AS s, max(k) AS high FROM {t} GROUP BY v",
    "joined": "SELECT a.k, b.n FROM {t} a LEFT JOIN {t} b ON a.k = b.n",
}
EVERY = ("put", "change", "take")
MAY = [
    pytest.param(
        1,
        "copy-on-write",
        dict.fromkeys(("spark", "pyiceberg"), EVERY) | dict.fromkeys(("flink", "java"), ("put",)),
        id="v1",
    ),
    pytest.param(
        2,
        "copy-on-write",
        dict.fromkeys(("spark", "pyiceberg"), EVERY)
        | dict.fromkeys(("duckdb without counts", "duckdb", "flink", "java"), ("put",)),
        id="v2 by copies",
    ),
    pytest.param(
        2,
        "merge-on-read",
        dict.fromkeys(("spark", "pyiceberg", "duckdb without counts", "duckdb"), EVERY),
        id="v2 by positions",
    ),
    # Rows go by equality too: pyiceberg and DuckDB 1.4 read no such table.
    pytest.param(
        2,
        "merge-on-read",
        dict.fromkeys(("spark", "duckdb", "java"), EVERY)
        | dict.fromkeys(("duckdb without counts", "pyiceberg"), ("put",))
        | {"flink": ("put", "change")},
        id="v2 by keys",
    ),
    # DuckDB 1.4 and pyiceberg do not write it.
    pytest.param(
        3,
        "merge-on-read",
        dict.fromkeys(("spark", "duckdb", "java"), EVERY) | {"flink": ("put", "change")},
        id="v3",
    ),
]
"""A format version, a mode of deletes, and what each program can do to such a table."""
COMPACT = (
    "CALL rest.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
)
LOOKED_AT = 0.6
"""The share of commits that an epoch follows."""
DUCKDB = {"duckdb without counts": "1.4.4", "duckdb": "1.5.5"}


@pytest.fixture(scope="module")
def writers(spark, rest_catalog, tmp_path_factory):
    """The programs by name; Spark's session has the catalog `rest`."""
    if is_connect(spark):
        pytest.skip("the files of a server are not told to its clients")
    with configured(spark, rest_catalog.settings("rest")), ExitStack() as stack:
        found = {
            "spark": foreign_writers.Sql("rest", spark.sql),
            "pyiceberg": foreign_writers.PyIceberg(rest_catalog.uri),
        }
        for name, version in DUCKDB.items():
            found[name] = stack.enter_context(foreign_writers.duckdb(version, rest_catalog.uri))
        folder = tmp_path_factory.mktemp("writers")
        java = foreign_writers.java_writers(rest_catalog.uri, folder)
        found["flink"], found["java"] = stack.enter_context(java)
        yield found


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
@pytest.mark.parametrize(("version", "mode", "may"), MAY)
def test_views_are_their_queries_whoever_writes(engine, schema, writers, version, mode, may):
    spark, table = engine.spark, (schema, "t")
    name = f"rest.{schema}.t"
    spark.sql(f"CREATE NAMESPACE rest.{schema}")
    modes = ", ".join(f"'write.{w}.mode' = '{mode}'" for w in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE {name} (k BIGINT NOT NULL, v STRING, n BIGINT) "
        f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )
    spark.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS k")
    turns = Turns(spark, name, random.Random(f"{version} {sorted(may)}"))
    writers["spark"].put(table, turns.put(40))
    views = {f"lake.{schema}.{view}": text.format(t=name) for view, text in VIEWS.items()}
    for view, query in views.items():
        engine.create_materialized_view(view, query, refresh_mode="incremental_strict")
    wrote, told = [], set()
    for who, what in turns.all_of(may):
        wrote.append(f"{who}: {what}")
        if what == "compact":
            spark.sql(COMPACT.format(t=f"{schema}.t"))
        else:
            getattr(writers[who], what)(table, getattr(turns, what)())
        if turns.rng.random() < LOOKED_AT:
            told |= {report.mode for report in engine.advance().tables.values()}
            for view in views:
                assert engine.verify(view) == [], (view, wrote)
            wrote.clear()
    assert "incremental" in told
    assert "full" not in told


class Turns:
    """What is done next to a table of (k, v, n)."""

    def __init__(self, spark, name, rng):
        self.rng = rng
        self._keys = lambda: [row.k for row in spark.table(name).sort("k").collect()]
        # Numbers are above 2³¹ (tests/support/foreign_writers.py).
        self._next = 10**10

    def all_of(self, may):
        """Each program does twice all that it may do, in any order."""
        turns = [(who, what) for who, every in may.items() for what in every] * 2
        turns += [("spark", "compact")] * 2
        self.rng.shuffle(turns)
        return turns

    def put(self, count=4):
        self._next += count
        return self._rows(range(self._next - count, self._next))

    def change(self):
        return self._rows(self.rng.sample(self._keys(), 2))

    def take(self):
        return self.rng.sample(self._keys(), 3)

    def _rows(self, keys):
        return [
            (key, self.rng.choice(["a", "b", "c", None]), self.rng.randrange(10**10, self._next))
            for key in keys
        ]
