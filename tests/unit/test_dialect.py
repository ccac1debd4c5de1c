"""The compiler's own reading of Spark SQL: what it writes is what it read."""

from __future__ import annotations

import pytest
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.dialect import parse_all, to_sql, unfaithful

EXPRESSIONS = r"""
to_char(price, '099.9')
date_trunc(grain, at)
parse_json(body)
percentile(x, 0.5, often)
date_format(d, 'y')
to_date(s, 'yyyy-MM-dd')
collate(name, 'UTF8_LCASE')
name COLLATE UTF8_BINARY
regexp_like(s, 'b') = true
rlike(a, b) IS NOT NULL
like(a, b) = false
a RLIKE b AND a NOT LIKE b ESCAPE '/' AND a ILIKE 'x'
a LIKE ANY ('x', 'y')
1.5BD + 1L - 2Y * 3S / 4F + 5D + 1E3BD + 1e3 + .5 + 007
'it''s' || "dq" || r'a\b' || 'a' 'b'
X'1F'
x::numeric(16,2)::string
CAST(x AS dec(3)) + CAST(y AS struct<a:int,`b c`:array<string>>).a
TRY_CAST(a AS timestamp_ntz)
DATE '2020-01-01' + INTERVAL '1-2' YEAR TO MONTH
TIMESTAMP'2020-01-01 00:00:00' - INTERVAL 1 DAY '2' HOURS -3 MINUTES
interval '1 day 2 hours'
dateadd(day, 1, d)
date_add(d, 3)
timestampdiff(SECOND, a, b)
extract(YEAR FROM d) + date_part('year', d)
position('a' IN b) + position('a', b, 3) + instr(a, b)
substring(s FROM 1 FOR 2) || substr(s, 2)
trim(BOTH 'x' FROM s) || trim(s) || trim(LEADING FROM s)
overlay(s PLACING 'x' FROM 1 FOR 2)
a DIV b % c & d | e ^ f << 1 >> 2
NOT a AND ! b OR a <=> b
a IS NOT DISTINCT FROM b OR a IS DISTINCT FROM b
a NOT IN (1, 2) AND a NOT BETWEEN 1 AND 2 AND a IS NOT TRUE
a != b AND c == d
- -a - -b + ~c
transform(arr, x -> x + 1)
aggregate(arr, 0, (a, b) -> a + b)
m['k'].f[0]
array(1, 2)[0]
v:a.b[0].`c d`::int
struct(a AS x, b)
make_interval(years => 1)
CASE WHEN a THEN b ELSE c END + CASE a WHEN 1 THEN 2 END
if(a, b, c)
count(*) + count(DISTINCT a, b)
sum(a) FILTER (WHERE b > 1)
listagg(DISTINCT a, ',') WITHIN GROUP (ORDER BY a DESC NULLS FIRST)
first(a, true) + first_value(a IGNORE NULLS) + any(b)
percentile_cont(0.5) WITHIN GROUP (ORDER BY a)
lag(a, 1, 0) IGNORE NULLS OVER (PARTITION BY b ORDER BY c DESC NULLS FIRST)
sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
(a, b) IN ((1, 2))
catalog.schema.f(x)
""".strip().splitlines()

NAMES = """
SELECT values, offset, window, interval, insert, for FROM t
SELECT from.values AS select, t.case, case.id FROM t, from
SELECT id AS values, id AS from, id outer FROM and AS or JOIN else ON or.id = else.id
SELECT struct(as, id), f(all, distinct), CASE WHEN then = 1 THEN id ELSE like END FROM t
SELECT like + 1, not FROM t WHERE between > 1 AND where = 2 GROUP BY join ORDER BY union
WITH lateral AS (SELECT 1 AS id) SELECT id FROM lateral
SELECT * FROM t LATERAL VIEW explode(a) `q z` AS `x y`
SELECT * FROM t TABLESAMPLE (10 PERCENT) REPEATABLE (3)
""".strip().splitlines()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_written_as_it_was_read(text):
    sql = f"SELECT {text} AS y FROM t"
    (tree,) = parse_all(sql)
    assert unfaithful(sql, tree) == ""
    assert parse_all(to_sql(tree)) == [tree]


def test_a_name_behind_rows_without_brackets_is_the_tables():
    (tree,) = parse_all("SELECT * FROM VALUES 1, (2) + 1, (3) AS t (a)")
    assert to_sql(tree) == "SELECT * FROM VALUES (1), ((2) + 1), (3) AS t(a)"
    assert parse_all(to_sql(tree)) == [tree]


@pytest.mark.parametrize("sql", NAMES)
def test_a_word_that_spark_does_not_reserve_may_be_a_name(sql):
    (tree,) = parse_all(sql)
    assert unfaithful(sql, tree) == ""
    assert parse_all(to_sql(tree)) == [tree]


PIPES = {
    "TABLE t": "SELECT * FROM t",
    "FROM t |> WHERE a > 1 |> WHERE t.b OR c |> SELECT a, b": (
        "SELECT a, b FROM t WHERE a > 1 AND (t.b OR c)"
    ),
    "FROM t |> LIMIT 2 |> WHERE t.a > 1": (
        "SELECT * FROM (SELECT * FROM t LIMIT 2) AS t WHERE t.a > 1"
    ),
    "TABLE t |> EXTEND a + 1 AS b, b AS c |> DROP a |> SET c = b": (
        "SELECT * FROM (SELECT * FROM (SELECT * EXCEPT (a) FROM "
        "(SELECT *, a + 1 AS b, b AS c FROM t) AS t) AS t |> SET c = b) AS t"
    ),
    "FROM t |> AGGREGATE sum(b) AS s, count(*) GROUP BY a, c + 1 AS d |> AS u |> SELECT u.s": (
        "SELECT u.s FROM (SELECT a, c + 1 AS d, SUM(b) AS s, COUNT(*) FROM t GROUP BY a, c + 1) AS u"
    ),
    "FROM (FROM t |> SELECT a) AS q |> WHERE a > 1 |> SELECT q.a + 1 AS b": (
        "SELECT q.a + 1 AS b FROM (SELECT a FROM t) AS q WHERE a > 1"
    ),
    "SELECT a FROM ((SELECT a FROM t) |> WHERE a > 1) AS q": (
        "SELECT a FROM (SELECT * FROM (SELECT a FROM t) WHERE a > 1) AS q"
    ),
    "FROM t |> AGGREGATE GROUP BY a, b": "SELECT a, b FROM t GROUP BY a, b",
    "FROM t |> JOIN u USING (a) |> WHERE b > 1 |> LEFT JOIN v ON a = c": (
        "SELECT * FROM (SELECT * FROM t JOIN u USING (a) WHERE b > 1) LEFT JOIN v ON a = c"
    ),
    "SELECT a FROM t |> UNION ALL TABLE u |> EXCEPT (FROM v |> SELECT a) |> ORDER BY a": (
        "SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT a FROM t) AS t UNION ALL "
        "SELECT * FROM u) EXCEPT (SELECT a FROM v)) ORDER BY a"
    ),
}


@pytest.mark.parametrize("piped", PIPES)
def test_operators_behind_a_pipe_are_the_blocks_that_they_stand_for(piped):
    (tree,) = parse_all(piped)
    assert to_sql(tree) == PIPES[piped]
    assert unfaithful(piped, tree) == ""
    assert unfaithful(piped + " |> WHERE a = 2", tree) != ""


@pytest.mark.parametrize("operator", ["TABLESAMPLE (1 ROWS)", "FOO", "SELECT a WHERE b", "SET a"])
def test_a_pipe_that_is_not_known_is_no_query(operator):
    with pytest.raises(SqlglotError):
        parse_all(f"FROM t |> {operator}")


def test_a_keyword_stays_one_where_it_can_be_nothing_else():
    sql = (
        "SELECT DISTINCT a, count(*) AS n, CAST(b AS DATE) AS d FROM (VALUES (1, 2)) AS t(a, b) "
        "LEFT OUTER JOIN u USING (a) CROSS JOIN v WHERE NOT a IS DISTINCT FROM b "
        "GROUP BY ALL HAVING n > 1 UNION ALL SELECT * EXCEPT (x) FROM w ORDER BY a LIMIT ALL"
    )
    (tree,) = parse_all(sql)
    assert unfaithful(sql, tree) in ("", "nothing instead of all, limit")
    assert {table.name for table in tree.find_all(exp.Table)} == {"u", "v", "w"}


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("SELECT to_char(a, 'x') FROM t", "SELECT to_char(a) FROM t"),
        ("SELECT a + 1L FROM t", "SELECT a + 1 FROM t"),
        ("SELECT a FROM t ORDER BY a DESC NULLS FIRST", "SELECT a FROM t ORDER BY a DESC"),
        ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM t UNION ALL SELECT a FROM u"),
    ],
)
def test_what_is_lost_is_told(said, read):
    assert unfaithful(said, parse_all(read)[0]) != ""
