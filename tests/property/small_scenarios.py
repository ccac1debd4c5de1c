"""Small scenarios, each with what one part of the runtime is needed for.

Random ones meet all of it too, but late. Here is also what the grammar has not: windows with ties,
`now()`, averages of wide decimals.
"""

from __future__ import annotations

from tests.property.grammar import Scenario

DRIVER, LOOK_UP, COMPARE, HELD, REWRITE, MERGE = (
    "the driver writes",
    "the process looks rows up",
    "the query is compared",
    "rows in the process are compared",
    "small tables are rewritten",
    "big tables are merged into",
)
"""How views are written: the names of `test_views_equal_queries.WAYS`."""

_ROWS = (
    "INSERT INTO {schema}.t1 VALUES (1, 1, 'a'), (1, 1, 'a'), (1, 2, 'a'), (1, 3, 'a'), (2, 0, 'b'), "
    "(2, 0, 'b'), (NULL, 2, 'c'), (NULL, 3, 'c'), (3, NULL, NULL), (4, 1, 'd'), (8, NULL, 'x')"
)
_GROUPS = (
    "SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(s) AS last FROM {schema}.t1 GROUP BY k",
    "SELECT k, AVG(v) AS mean FROM {schema}.t1 GROUP BY k",
)
_SUMS = (
    "SELECT k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS total FROM {schema}.t1 GROUP BY k",
    "SELECT s, k, SUM(v) AS total, COUNT(*) AS n FROM {schema}.t1 GROUP BY s, k",
)
_PLACES = "SELECT k, s, rank() OVER (PARTITION BY k ORDER BY s) AS place FROM {schema}.t1"
_COPIES = "SELECT k, s FROM {schema}.t1 WHERE v >= 0"
_NEW = (
    "INSERT INTO {schema}.t1 VALUES (1, 4, 'a'), (1, 4, 'a'), (NULL, 5, 'z'), (7, 0, 'q'), "
    "(8, 1, 'x'), (0, 6, 'o')"
)
_CHANGES = (
    (_NEW,),
    (
        "DELETE FROM {schema}.t1 WHERE k = 1 AND v IN (1, 4)",
        "INSERT INTO {schema}.t1 VALUES (5, 5, 'e'), (5, 5, 'e')",
        "UPDATE {schema}.t1 SET v = v + 2 WHERE k = 2",
    ),
    (
        "DELETE FROM {schema}.t1 WHERE k IS NULL",
        "UPDATE {schema}.t1 SET s = 'y' WHERE k = 4",
        "DELETE FROM {schema}.t1 WHERE k IN (3, 7)",
        "UPDATE {schema}.t1 SET v = NULL WHERE k = 8",
    ),
)


_COMPACT = (
    "CALL lake.system.rewrite_data_files("
    "table => '{schema}.t1', options => map('rewrite-all', 'true'))"
)
_COMPACTED = tuple(
    (
        *statements,
        _COMPACT,
    )
    for statements in _CHANGES
)


def _table(name: str, columns: str, version: int, mode: str) -> str:
    modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
    return (
        f"CREATE TABLE {{schema}}.{name} ({columns}) "
        f"TBLPROPERTIES ('format-version'='{version}', {modes})"
    )


def _over_t1(
    seed: int,
    views: tuple[str, ...],
    epochs: tuple[tuple[str, ...], ...] = _CHANGES,
    version: int = 3,
    mode: str = "merge-on-read",
) -> Scenario:
    create = (_table("t1", "k INT, v INT, s STRING", version, mode), _ROWS)
    return Scenario(seed, create, views, epochs)


_JOINED = Scenario(
    110,
    (
        _table("t1", "k INT, v INT", 3, "merge-on-read"),
        _table("t2", "k INT, w INT", 3, "merge-on-read"),
        "INSERT INTO {schema}.t1 VALUES (1, 1), (2, 2), (3, 3), (3, 3), (NULL, 4)",
        "INSERT INTO {schema}.t2 VALUES (1, 10), (3, 30), (4, 40)",
    ),
    (
        "SELECT a.k, a.v, b.w FROM {schema}.t1 a JOIN {schema}.t2 b ON a.k = b.k",
        "SELECT a.k, a.v, b.w FROM {schema}.t1 a LEFT JOIN {schema}.t2 b ON a.k = b.k",
    ),
    (
        (
            "INSERT INTO {schema}.t1 VALUES (5, 5), (4, 4)",
            "INSERT INTO {schema}.t2 VALUES (5, 50), (2, 20)",
        ),
        ("DELETE FROM {schema}.t1 WHERE k = 5", "DELETE FROM {schema}.t2 WHERE k IN (3, 5)"),
    ),
)
_SORTED = (
    "CALL lake.system.rewrite_data_files(table => '{schema}.t1', strategy => 'sort', "
    "sort_order => 's DESC', options => map('rewrite-all', 'true'))"
)
_TIES = Scenario(
    111,
    (
        _table("t1", "k INT, v INT, s STRING", 3, "merge-on-read"),
        "INSERT INTO {schema}.t1 VALUES (1, 1, 'a'), (1, 1, 'b'), (1, 1, 'c'), (2, 1, 'd'), (2, 1, 'd')",
    ),
    (
        "SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM {schema}.t1",
        "SELECT k, s, COUNT(*) OVER (PARTITION BY k) AS n FROM {schema}.t1",
    ),
    (
        (_SORTED, "INSERT INTO {schema}.t1 VALUES (2, 1, 'e'), (3, 3, 'f'), (3, 3, 'f')"),
        ("INSERT INTO {schema}.t1 VALUES (3, 4, 'f'), (4, 1, 'g')",),
        ("DELETE FROM {schema}.t1 WHERE s IN ('d', 'g') OR v = 4",),
    ),
)
_CLOCK = Scenario(
    112,
    (
        _table("t1", "id BIGINT, ts TIMESTAMP", 3, "merge-on-read"),
        "INSERT INTO {schema}.t1 SELECT id, timestampadd(SECOND, CAST(id AS INT), now()) FROM range(90)",
    ),
    (
        "SELECT id FROM {schema}.t1 WHERE ts <= now()",
        "SELECT id FROM {schema}.t1 WHERE ts > now() - INTERVAL 2 SECONDS",
    ),
    (
        ("SELECT 1",),
        ("DELETE FROM {schema}.t1 WHERE id % 2 = 0",),
        ("INSERT INTO {schema}.t1 SELECT id, ts FROM {schema}.t1 WHERE id < 9",),
    ),
)
_DECIMALS = Scenario(
    113,
    (
        _table("t1", "k INT, wide DECIMAL(20,4), narrow DECIMAL(9,2)", 3, "merge-on-read"),
        "INSERT INTO {schema}.t1 VALUES (1, 0.0001, 0.01), (1, 0.0001, 0.01), (1, NULL, NULL), (2, 7.5, 7.5)",
    ),
    ("SELECT k, AVG(wide) AS a, SUM(wide) AS b, AVG(narrow) AS c FROM {schema}.t1 GROUP BY k",),
    (
        ("INSERT INTO {schema}.t1 VALUES (1, 0, 0), (2, -0.0001, -0.01), (2, 1, 1)",),
        (
            "DELETE FROM {schema}.t1 WHERE k = 2 AND wide = 1",
            "UPDATE {schema}.t1 SET wide = 3.3333",
        ),
    ),
)
_CHAIN = (
    "SELECT k, COUNT(*) AS n FROM {schema}.t1 GROUP BY k",
    "SELECT k, n FROM {schema}.v0 WHERE n > 1",
)

_READER = (
    "SELECT a.k, COUNT(*) AS n FROM {schema}.t1 a JOIN {schema}.v0 b ON a.k = b.k GROUP BY a.k"
)
_COMES_BACK = (
    *_CHANGES,
    # What went comes back.
    (_NEW, "INSERT INTO {schema}.t1 VALUES (3, NULL, NULL), (4, 1, 'd')"),
    ("DELETE FROM {schema}.t1 WHERE k IN (1, 3) OR k IS NULL",),
    (_NEW,),
)

SMALL: dict[str, tuple[str, Scenario]] = {
    "lineage": (DRIVER, _over_t1(100, (_COPIES,))),
    "changelog": (DRIVER, _over_t1(101, (_COPIES,), version=2, mode="copy-on-write")),
    "positions": (DRIVER, _over_t1(118, (_COPIES,), version=2)),
    "difference": (DRIVER, _over_t1(102, (_COPIES,), _COMPACTED, version=2)),
    "driver groups": (DRIVER, _over_t1(103, _GROUPS)),
    "looked up": (LOOK_UP, _over_t1(116, (_COPIES, *_SUMS))),
    "looked up chain": (LOOK_UP, _over_t1(117, _CHAIN)),
    "rewritten copies": (REWRITE, _over_t1(104, (_COPIES,))),
    "rewritten groups": (REWRITE, _over_t1(105, _GROUPS)),
    "merged groups": (MERGE, _over_t1(106, _GROUPS)),
    "deleted copies": (MERGE, _over_t1(107, (_COPIES,))),
    "chain": (DRIVER, _over_t1(108, _CHAIN)),
    "joined": (DRIVER, _JOINED),
    "ties": (DRIVER, _TIES),
    "rewritten ties": (REWRITE, _TIES),
    "rewritten places": (REWRITE, _over_t1(109, (_PLACES,))),
    "clock": (DRIVER, _CLOCK),
    "decimals": (DRIVER, _DECIMALS),
    "compared": (COMPARE, _over_t1(114, (*_CHAIN, _COPIES))),
    "read by two": (LOOK_UP, _over_t1(119, (*_CHAIN, _READER))),
    "held": (HELD, _over_t1(115, (*_CHAIN, _COPIES), _COMES_BACK)),
}
"""Name -> how its views are written, and the scenario. None of them needs a full refresh."""
