"""PIVOT, UNPIVOT and correlated sub-queries mean on changes what Spark means by them."""

from __future__ import annotations

import pytest

VIEWS = {
    "a count of no rows is NULL in PIVOT": "SELECT * FROM {i} PIVOT (count(*) AS c, sum(v) AS t FOR s IN ('a', 'zz', NULL))",
    "beside a text it is 0": "SELECT * FROM {i} PIVOT (count(*) AS c, max(d) AS t FOR s IN ('a', 'zz'))",
    "PIVOT guards an expression": "SELECT * FROM {i} PIVOT (coalesce(sum(v), 0) FOR s IN ('a', 'zz'))",
    "PIVOT by two columns": "SELECT * FROM {i} PIVOT (avg(v) FOR (s, d) IN (('a', NULL) AS an, ('b', '1') AS b1))",
    "PIVOT by a struct": "SELECT * FROM (SELECT struct(s, d) AS p, v FROM {i}) PIVOT (sum(v) FOR p IN (('a', NULL) AS an, struct('b', '1')))",
    "PIVOT of all rows": "SELECT * FROM (SELECT s, v FROM {i}) PIVOT (count(DISTINCT v) FOR s IN ('a', 'b'))",
    "UNPIVOT of pairs": "SELECT * FROM {w} UNPIVOT ((v1, v2) FOR n IN ((a, b) AS ab, (B, A)))",
    "UNPIVOT names as written": "SELECT n, count(*) AS c FROM {w} UNPIVOT INCLUDE NULLS (x FOR n IN (a AS `A b`, ID)) GROUP BY n",
    "UNPIVOT joined": "SELECT u.id, i.s, x FROM {w} UNPIVOT (x FOR n IN (a, b)) u JOIN {i} i ON u.id = i.k",
    "both": "SELECT * FROM (SELECT k, v, s FROM {i}) PIVOT (sum(v) FOR s IN ('a', 'b')) UNPIVOT (x FOR n IN (a, b))",
    "an absent group is NULL": "SELECT id, (SELECT count(*) FROM {i} i WHERE i.k = w.a AND i.v = 1 GROUP BY i.v) AS n FROM {w} w",
    "an absent aggregate is 0": "SELECT id FROM {w} w WHERE 0 IN (SELECT count(*) FROM {i} i WHERE i.k = w.a)",
    "HAVING leaves no row": "SELECT id FROM {w} w WHERE b NOT IN (SELECT max(v) FROM {i} i WHERE i.k = w.a HAVING count(*) > 1)",
    "IN over a constant beside HAVING": "SELECT id FROM {w} w WHERE b - 6 IN (SELECT 1 FROM {i} i WHERE i.k = w.a HAVING count(*) < 4)",
    "NOT IN over a constant beside HAVING": "SELECT id FROM {w} w WHERE b - 6 NOT IN (SELECT 1 FROM {i} i WHERE i.k = w.a HAVING count(*) <> 2)",
    "HAVING in LATERAL": "SELECT id, m FROM {w} w, LATERAL (SELECT max(v) AS m FROM {i} i WHERE i.k = w.a HAVING count(*) > 1) l",
    "IN is two-valued": "SELECT id, b IN (SELECT max(v) FROM {i} i WHERE i.k = w.a GROUP BY s) AS x FROM {w} w",
    "first of the greater": "SELECT id, (SELECT v FROM {i} i WHERE i.k > w.a ORDER BY v DESC, s LIMIT 1) AS x FROM {w} w",
    "HAVING that reaches out": "SELECT id FROM {w} w WHERE EXISTS (SELECT s FROM {i} i GROUP BY s HAVING max(v) > w.b)",
    "the second row": "SELECT id, l.v FROM {w} w LEFT JOIN LATERAL (SELECT v FROM {i} i WHERE i.k = w.a ORDER BY v LIMIT 1 OFFSET 1) l ON true",
    "an alias named as ours": "SELECT q.id FROM {w} q WHERE q.a IN (SELECT k FROM {i})",
}
BELOW = {
    "EXISTS over UNION ALL": "SELECT id FROM {w} w WHERE EXISTS (SELECT 1 FROM {i} i WHERE i.k = w.a AND i.v > 6 UNION ALL SELECT 2 FROM {i} j WHERE j.v = w.b)",
    "IN over INTERSECT ALL": "SELECT id, a FROM {w} w WHERE a IN (SELECT v FROM {i} i WHERE i.k < w.b INTERSECT ALL SELECT k FROM {i} j WHERE j.k = w.a)",
    "NOT IN over EXCEPT": "SELECT id FROM {w} w WHERE b NOT IN (SELECT v FROM {i} i WHERE i.k = w.a EXCEPT SELECT v FROM {i} j WHERE j.s = 'b')",
    "sum over UNION ALL": "SELECT id, (SELECT sum(c) FROM (SELECT v AS c FROM {i} i WHERE i.k = w.a UNION ALL SELECT k AS c FROM {i} j WHERE j.v = w.b)) AS x FROM {w} w",
    "count over UNION, as condition": "SELECT id FROM {w} w WHERE a > (SELECT count(c) FROM (SELECT v AS c FROM {i} i WHERE i.k = w.a UNION SELECT 1) q WHERE c > 2)",
    "three sides": "SELECT id, (SELECT max(c) FROM (SELECT v AS c FROM {i} i WHERE i.k = w.a UNION ALL SELECT k FROM {i} j WHERE j.v = w.b UNION ALL SELECT w.a + w.b) q) AS x FROM {w} w",
    "grouped below": "SELECT id FROM {w} w WHERE b >= (SELECT max(m) FROM (SELECT s, avg(v) AS m FROM {i} i WHERE i.k = w.a GROUP BY s) q)",
    "a count of no rows below": "SELECT id, (SELECT sum(n) FROM (SELECT count(*) AS n FROM {i} i WHERE i.v = w.b) q) AS x FROM {w} w",
    "LATERAL of UNION ALL": "SELECT id, l.c FROM {w} w, LATERAL (SELECT v AS c FROM {i} i WHERE i.k = w.a UNION ALL SELECT w.b) l",
    "LEFT LATERAL of EXCEPT": "SELECT id, l.c FROM {w} w LEFT JOIN LATERAL (SELECT v AS c FROM {i} i WHERE i.k = w.a EXCEPT SELECT 7) l ON true",
    "LATERAL that computes": "SELECT id, l.x FROM {w} w JOIN LATERAL (SELECT w.b - i.v AS x FROM {i} i WHERE i.k <= w.a) l",
    "WITH": "SELECT id, (WITH q AS (SELECT v, s FROM {i} i WHERE i.k = w.a), r (m) AS (SELECT max(v) FROM q) SELECT m FROM r) AS x FROM {w} w",
    "a value that is computed": "SELECT id, (SELECT w.a + w.b) AS y FROM {w} w",
    "LEFT LATERAL that computes": "SELECT id, l.x FROM {w} w LEFT JOIN LATERAL (SELECT i.v + w.b AS x FROM {i} i WHERE i.k = w.a AND i.v > w.b - 3) l ON true",
    "ON that reaches out": "SELECT id FROM {w} w WHERE EXISTS (SELECT 1 FROM {i} i LEFT JOIN {i} j ON i.k = j.k AND j.v > w.b WHERE i.v = 5 AND j.v IS NULL)",
}
EPOCHS = (
    ("DELETE FROM {i} WHERE s = 'a' AND v = 5", "UPDATE {w} SET a = 2 WHERE id = 1"),
    ("INSERT INTO {i} VALUES (1, 9, 'a', '1'), (2, NULL, NULL, NULL), (2, 1, 'b', '1')",),
    ("DELETE FROM {i} WHERE k = 1", "INSERT INTO {w} VALUES (4, 1, NULL)"),
)


@pytest.fixture
def names(engine, schema):
    found = {"i": f"lake.{schema}.i", "w": f"lake.{schema}.w"}
    engine.spark.sql(f"CREATE TABLE {found['i']} (k INT, v INT, s STRING, d STRING)")
    engine.spark.sql(f"CREATE TABLE {found['w']} (id INT, a INT, b BIGINT)")
    engine.spark.sql(
        f"INSERT INTO {found['i']} VALUES (1, 5, 'a', NULL), (1, 5, 'a', NULL), (1, 7, 'b', '1'),"
        " (2, NULL, 'a', '1'), (NULL, 1, 'c', '1'), (NULL, 1, NULL, NULL)"
    )
    engine.spark.sql(
        f"INSERT INTO {found['w']} VALUES (1, 1, 7), (2, 2, NULL), (3, NULL, 1), (3, NULL, 1)"
    )
    return found


@pytest.mark.parametrize("views", [VIEWS, BELOW], ids=["views", "below"])
def test_views_equal_their_queries_while_all_inputs_change(engine, schema, names, views):
    made = {}
    for number, (what, text) in enumerate(views.items()):
        made[f"lake.{schema}.v{number}"] = what
        engine.create_materialized_view(
            f"lake.{schema}.v{number}", text.format(**names), refresh_mode="incremental_strict"
        )
    for statements in EPOCHS:
        for statement in statements:
            engine.spark.sql(statement.format(**names))
        engine.advance()
        for name, what in made.items():
            assert engine.verify(name) == [], what


def test_a_clause_behind_a_bracket_counts(engine, schema, names):
    texts = (
        "SELECT id FROM {w} WHERE a IN ((SELECT k FROM {i}) LIMIT 0)",
        "SELECT id, ((SELECT v FROM {i} i WHERE i.k = w.a) LIMIT 0) AS x FROM {w} w",
        "SELECT id, l.v FROM {w} w LEFT JOIN LATERAL ((SELECT v FROM {i} i WHERE i.k = w.a) LIMIT 0) l",
    )
    views = {f"lake.{schema}.v{number}": text for number, text in enumerate(texts)}
    for name, text in views.items():
        engine.create_materialized_view(name, text.format(**names))
    engine.spark.sql(f"INSERT INTO {names['w']} VALUES (4, 1, NULL), (5, 2, 7)")
    engine.advance()
    for name, text in views.items():
        want = sorted(map(str, engine.spark.sql(text.format(**names)).collect()))
        assert sorted(map(str, engine.spark.table(name).collect())) == want, text
