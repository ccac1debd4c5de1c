"""Which columns of a sub-query belong to the rows around it: names count where they are seen."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.lowering.outer_references import reaching_out
from dbt_streamsql.compiler.parsing.dialect import parse_all, to_sql


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT i.v FROM i WHERE i.k = w.a", ["w.a"]),
        ("SELECT q.v FROM (SELECT i.v FROM i WHERE i.k = w.a) q", ["w.a"]),
        # A relation that is read elsewhere in the text is not seen here.
        ("SELECT q.v FROM (SELECT i.v FROM i WHERE i.k = w.a) q, w", ["w.a"]),
        ("SELECT i.v FROM i WHERE i.k IN (SELECT w.a FROM w) AND i.v = w.b", ["w.b"]),
        ("WITH q AS (SELECT w.a) SELECT q.a FROM q, w", ["w.a"]),
        ("SELECT i.v FROM i UNION ALL SELECT w.a FROM i AS j WHERE j.k = i.k", ["w.a", "i.k"]),
        ("SELECT q.a FROM ((SELECT w.a)) AS q, w", ["w.a"]),
        ("SELECT q.v FROM ((SELECT w.a AS v) AS q JOIN w ON w.a = q.v)", ["w.a"]),
        # What is read beside it is seen by LATERAL, ON, and sub-queries in expressions.
        ("SELECT l.x FROM w, LATERAL (SELECT w.a + o.b AS x) AS l", ["o.b"]),
        ("SELECT i.v FROM (i JOIN w ON w.a = i.k) JOIN j ON j.k = w.b AND j.v = o.b", ["o.b"]),
        ("SELECT (SELECT max(i.v) FROM i WHERE i.k = w.a) FROM w", []),
        ("SELECT x FROM w LATERAL VIEW explode(w.arr) l AS x WHERE l.x = o.c", ["o.c"]),
    ],
)
def test_a_column_reaches_out_where_its_relation_is_not_seen(text, named):
    (tree,) = parse_all(text)
    assert sorted(map(to_sql, reaching_out(tree))) == sorted(named)
