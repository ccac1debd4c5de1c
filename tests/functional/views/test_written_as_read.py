"""What changed rows are computed by is what the user wrote: functions, operators and names.

Every view is kept from changes here; each one was wrong, refused or a crash when the compiler
wrote its expressions anew.
"""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE {s}.t (id INT, shop STRING, price DECIMAL(10,2), at TIMESTAMP, d DATE, grain STRING,
  body STRING, x DOUBLE, often INT, s STRING, name STRING, amount INT, v BIGINT, b BOOLEAN,
  arr ARRAY<INT>, `_w` INT);
CREATE TABLE {s}.jan (k INT, a INT, b__c INT);
CREATE TABLE {s}.feb (k INT, b INT);
CREATE TABLE {s}.mar (k BIGINT, c INT, a INT);
CREATE TABLE {s}.`Jan` (k STRING, z INT);
CREATE TABLE {s}.odd (`as` INT, id INT, `all` INT, `values` INT, `offset` INT);
INSERT INTO {s}.t VALUES
  (1, 'n', 1.50, TIMESTAMP'2024-01-02 03:04:05', DATE'2024-01-02', 'MONTH', '{{"a":1}}', 1.0, 2,
   '2024-01-02', 'Ab', 5, 1, true, array(1, 2), 1),
  (2, 's', null, null, null, null, null, null, null, null, null, null, null, null, null, null);
INSERT INTO {s}.jan VALUES (1, 1, 1), (2, 2, 7);
INSERT INTO {s}.feb VALUES (2, 2), (3, 3);
INSERT INTO {s}.mar VALUES (3, 3, 1), (4, 4, 2), (2, 9, 2);
INSERT INTO {s}.`Jan` VALUES ('1', 1), ('2', null);
INSERT INTO {s}.odd VALUES (1, 1, 1, 1, 1)
"""

PARTS = 5
"""Of the views; a run has the parts of its slice."""

EPOCHS = (
    """
    INSERT INTO {s}.t VALUES
      (3, 'n', 12.34, TIMESTAMP'2025-06-02 03:04:05', DATE'2025-06-02', 'YEAR', '{{"a":7}}', 3.5,
       5, '2025-06-02', 'ab', null, 1, true, array(3), 7),
      (4, 's', 7.00, TIMESTAMP'1999-12-31 23:59:59', DATE'1999-12-31', 'quarter', '{{"b":1}}',
       -2.25, 1, '1999-12-31', 'Zz', 9, 2, false, array(), null);
    INSERT INTO {s}.mar VALUES (1, 5, 1);
    INSERT INTO {s}.feb VALUES (4, 7), (1, null);
    INSERT INTO {s}.`Jan` VALUES ('3', 5);
    INSERT INTO {s}.odd VALUES (2, 2, 2, 2, 2)
    """,
    """
    DELETE FROM {s}.t WHERE id = 1;
    DELETE FROM {s}.jan WHERE k = 2;
    UPDATE {s}.feb SET b = 8 WHERE k = 3;
    INSERT INTO {s}.t VALUES (5, 'n', 0.10, TIMESTAMP'2024-01-02 03:04:05', null, 'WEEK', null,
      1.0, 1, '2024-02-02', null, 2, 3, true, null, 3)
    """,
)

VIEWS = r"""
SELECT window.start AS a, window.end AS b, count(*) AS n FROM {s}.t GROUP BY window(at, '6 hours', '2 hours') HAVING window.end > TIMESTAMP'2000-01-01'
SELECT shop, count(*) AS n, min(v) AS m FROM {s}.t GROUP BY window(at, '1 day'), shop
SELECT window.START AS w, sum(v) AS n FROM {s}.t GROUP BY window(at, '6 hours') ORDER BY window.end DESC LIMIT 2
SELECT window, sum(v) AS n FROM {s}.t GROUP BY window(at, '1 day') HAVING window.start > TIMESTAMP'2000-01-01'
SELECT * FROM (SELECT id, v FROM {s}.t ORDER BY v DESC NULLS FIRST, id DESC) LIMIT 2
SELECT -id AS id, shop FROM (SELECT id, shop FROM {s}.t ORDER BY id DESC) o WHERE shop <> 'x' LIMIT 1
SELECT * FROM (SELECT id, v FROM (SELECT * FROM {s}.t ORDER BY v DESC NULLS FIRST, id DESC) WHERE id > 0) LIMIT 2
SELECT * FROM (SELECT q.id AS shop, q.shop AS id FROM (SELECT * FROM {s}.t) q ORDER BY q.id DESC) LIMIT 2
WITH o AS (SELECT * FROM {s}.t ORDER BY shop DESC, id) SELECT id, amount FROM o LIMIT 2
SELECT k FROM (SELECT k, a FROM {s}.jan UNION ALL SELECT k, b FROM {s}.feb ORDER BY k DESC, a) u LIMIT 2
SELECT shop, grain, grouping__id FROM {s}.t GROUP BY CUBE(shop, grain) ORDER BY grouping__id, shop
SELECT shop, GROUPING(shop) AS g FROM {s}.t GROUP BY CUBE(shop, grain) HAVING grouping__id > 0 ORDER BY GROUPING(shop), shop
SELECT concat_ws(' ', shop, name) FROM {s}.t ORDER BY `concat_ws( , shop, name)`
SELECT 1 AS one FROM {s}.t WHERE id > 4 HAVING 1 < 2
SELECT sum(v) AS s, 1 + id AS n FROM {s}.t GROUP BY id + 1, v * 2 HAVING 2 * v > 0
SELECT every(b) AS a, bool_or(v > 1) AS o, bool_and(NULL) AS n, some('true') AS s FROM {s}.t
SELECT j.k, z, jan.a FROM {s}.Jan j JOIN {s}.jan ON j.k = jan.k
SELECT Jan.k, count(z) AS n FROM {s}.Jan GROUP BY jan.K
SELECT jan.*, (SELECT count(*) FROM {s}.feb WHERE feb.k = jan.k) FROM {s}.jan
SELECT k, (WITH q AS (SELECT max(k) AS m FROM {s}.feb) SELECT m FROM q) FROM {s}.jan
SELECT count(cast(k IN (SELECT k FROM {s}.feb) AS INT)) AS c, sum(CASE WHEN k NOT IN (SELECT k FROM {s}.feb) THEN 1 ELSE 2 END) AS s FROM {s}.jan
SELECT a, sum(CASE WHEN k IN (SELECT k FROM {s}.feb) THEN 1 ELSE 2 END) AS s, a + 1 IN (SELECT k FROM {s}.feb) AS i FROM {s}.mar GROUP BY a
SELECT r.id, jan.a FROM range(1, 5) r LEFT JOIN {s}.jan ON jan.k = r.id
SELECT e, count(id) AS n FROM explode(sequence(1, 5)) AS q(e) LEFT JOIN {s}.t ON id = e GROUP BY e
WITH RECURSIVE days(d) AS (SELECT DATE'2024-01-01' UNION ALL SELECT d + 1 FROM days WHERE d < DATE'2024-01-10') SELECT days.d, count(id) AS n FROM days LEFT JOIN {s}.t ON t.d = days.d GROUP BY days.d
WITH RECURSIVE start AS (SELECT 1 AS n), r(level) AS (SELECT n FROM start UNION ALL SELECT level + 1 FROM r WHERE level < 4), w AS (SELECT level FROM r WHERE level > 1) SELECT w.level, a FROM w JOIN {s}.jan ON k = level
WITH q(x, y) AS (VALUES (1, 2), (2, 3)) SELECT x, y, b FROM q LEFT JOIN {s}.feb ON k = x
SELECT k, col2 FROM {s}.jan JOIN VALUES (1, 'a'), (2, 'b') ON k = col1
SELECT shop, percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) OVER (PARTITION BY shop) AS p, mode() WITHIN GROUP (ORDER BY amount) OVER w AS m FROM {s}.t WINDOW w AS (PARTITION BY shop)
SELECT id, +cast(amount AS STRING) AS y, - + amount AS z, timediff(HOUR, d, at) AS u FROM {s}.t
SELECT shop, +max(amount) AS m, -max(v) AS n FROM {s}.t GROUP BY shop
SELECT k FROM {s}.jan MINUS SELECT k FROM {s}.feb
SELECT k FROM {s}.jan MINUS ALL SELECT k FROM {s}.feb
SELECT jan.k, n FROM {s}.jan LEFT JOIN LATERAL (SELECT count(*) AS n FROM {s}.feb WHERE feb.k = jan.k)
SELECT q, r FROM {s}.jan JOIN LATERAL stack(2, k, a, a, k) f(q, r)
SELECT k, explode(map(1, k, 2, a)) FROM {s}.jan
SELECT k, stack(2, k, 'a', a, 'b') FROM {s}.jan
SELECT k, posexplode(array(k, a)) FROM {s}.jan
SELECT id, json_tuple(body, 'a', 'b') FROM {s}.t
SELECT a.k, a.b__c AS x, a__b.c AS y, f.b AS z, t.shop FROM {s}.jan a JOIN {s}.mar a__b ON a.k = a__b.k JOIN {s}.feb f ON f.k = a.k JOIN {s}.t t ON t.id = f.k AND a__b.c > 1
SELECT id, to_char(price, '099.9') AS y, to_char(at, 'yyyy') AS z FROM {s}.t
SELECT id, date_trunc(grain, at) AS y, trunc(d, grain) AS z FROM {s}.t
SELECT id, to_json(parse_json(body)) AS y, variant_get(parse_json(body), '$.a', 'int') AS z FROM {s}.t
SELECT id, parse_json(body):a::int AS y, extract(year from d) AS z, id << 2 AS u FROM {s}.t
SELECT id, substring(s from 1 for 4) AS q, trim(both '2' from s) AS r, position('2' in s) AS p FROM {s}.t
SELECT shop, percentile(x, 0.5, often) AS p FROM {s}.t GROUP BY shop
SELECT id, date_format(d, 'y') AS y, to_date(s, 'y-M-d') AS z, to_date(s, 'yyyy-MM-dd') AS w FROM {s}.t
SELECT id, collate(name, 'UTF8_LCASE') = 'ab' AS y FROM {s}.t
SELECT id, regexp_like(s, '2') = true AS a, rlike(s, '2') = false AS b, like(s, '2%') IS NOT NULL AS c FROM {s}.t
SELECT /*+ BROADCAST(q) */ q.id, q.price + 1.5BD AS y, 'it''s' AS z, 1L AS o FROM {s}.t q
SELECT x::numeric(16,2) AS a, cast(x as dec(10,1)) AS b, dateadd(day, 1, d) AS c, instr(s, '2') AS e, signum(x) AS f, log10(x + 3) AS g, array_size(arr) AS h, char(id) AS i FROM {s}.t
SELECT shop, any(b) AS c, some(b) AS e, bool_and(b) AS g, count_if(b) AS h, mean(x) AS i FROM {s}.t GROUP BY shop
SELECT shop, any(b) FROM {s}.t GROUP BY shop
SELECT shop, listagg(name, ',') WITHIN GROUP (ORDER BY amount DESC NULLS FIRST, v) AS l, listagg(DISTINCT name, ',') WITHIN GROUP (ORDER BY name DESC) AS m FROM {s}.t GROUP BY shop
SELECT id, first_value(amount) IGNORE NULLS OVER (PARTITION BY shop ORDER BY v) AS f FROM {s}.t
SELECT id, first_value(amount, true) OVER (PARTITION BY shop ORDER BY v RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS f FROM {s}.t
SELECT id, last_value(amount) IGNORE NULLS OVER (PARTITION BY shop ORDER BY v, id RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS f FROM {s}.t
SELECT k, jan.a, b, c FROM {s}.jan FULL JOIN {s}.feb USING (k) FULL JOIN {s}.mar USING (k)
SELECT * FROM {s}.jan NATURAL FULL JOIN {s}.feb NATURAL FULL JOIN (SELECT k, c FROM {s}.mar)
SELECT k, b, c FROM {s}.jan RIGHT JOIN {s}.feb USING (k) RIGHT JOIN {s}.mar USING (k)
SELECT k, b, c FROM {s}.jan LEFT JOIN {s}.feb USING (k) FULL JOIN {s}.mar USING (k) WHERE k > 1
WITH q AS (SELECT k, a FROM {s}.jan JOIN {s}.feb USING (k)), r AS (SELECT * FROM q JOIN {s}.mar USING (k, a)) SELECT struct(k) AS s, a, c FROM r FULL JOIN q USING (k, a)
SELECT k, count(*) AS n FROM {s}.jan FULL JOIN {s}.feb USING (k) GROUP BY k HAVING k > 0
SELECT id, -amount AS amount FROM {s}.t WHERE amount > 0 ORDER BY amount + 0 LIMIT 1
SELECT id, struct(as, id) AS y, struct(all, id) AS z, values, offset FROM {s}.odd
SELECT shop, sum(amount), count(amount), avg(amount), max(`_w`) FROM {s}.t GROUP BY shop
SELECT shop AS `the {{shop}}`, sum(x) AS `total % amount`, sum(x) / 2 AS half FROM {s}.t GROUP BY shop
SELECT shop FROM {s}.t GROUP BY shop HAVING sum(v)
SELECT id, `_w` AS y, `_w` FROM {s}.t
SELECT CAST(10 AS INT), 10, id + 1, -id FROM {s}.t
SELECT shop, b, sum(amount) AS s, grouping_id() AS g FROM {s}.t GROUP BY shop, b WITH CUBE
SELECT shop, b, count(*) AS n FROM {s}.t GROUP BY 1, 2 WITH ROLLUP ORDER BY shop
SELECT shop, b, sum(amount) AS s FROM {s}.t GROUP BY shop, b GROUPING SETS (shop, b)
SELECT shop, b, count(*) AS n, grouping_id() AS g FROM {s}.t GROUP BY b, shop GROUPING SETS ((shop), ())
SELECT shop, b, count(1) FROM {s}.t GROUP BY GROUPING SETS ((1), (b), (shop, 2))
SELECT upper(shop) AS u, b, count(*) AS n FROM {s}.t GROUP BY u, b GROUPING SETS ((u), (2))
SELECT shop, b, id, count(*) AS n FROM {s}.t GROUP BY CUBE (1, (b, 3)), ROLLUP (id)
SELECT id, sum(amount) OVER (PARTITION BY shop ORDER BY id ROWS UNBOUNDED PRECEDING) AS s, sum(v) OVER (ORDER BY id ROWS 1 PRECEDING) AS u FROM {s}.t
SELECT j.a, f.b FROM {s}.jan j FULL OUTER JOIN {s}.feb f WHERE j.k IN (SELECT k FROM {s}.mar)
SELECT j.a, f.b FROM {s}.jan j LEFT JOIN {s}.feb f
SELECT k, a FROM {s}.jan WHERE (k, a) NOT IN (SELECT k, b FROM {s}.feb)
SELECT k, a FROM {s}.mar WHERE (k, a) NOT IN (SELECT often, amount FROM {s}.t WHERE id = mar.c)
SELECT j.k, e FROM {s}.jan j JOIN LATERAL explode(array(k, a, 2)) x(e) ON j.k = e
SELECT j.a, f.b, m.c FROM ({s}.jan j JOIN {s}.feb f ON j.k = f.k) FULL JOIN {s}.mar m ON m.k = f.k
SELECT j.a, f.b, m.c FROM {s}.jan j LEFT JOIN ({s}.feb f JOIN {s}.mar m ON m.k = f.k) ON j.k = f.k
SELECT j.a, f.b, m.c, t.shop FROM {s}.jan j JOIN ({s}.feb f LEFT JOIN {s}.mar m ON m.k = f.k) ON j.k <= f.k JOIN {s}.t t ON t.id = j.k
SELECT k FROM {s}.jan WHERE (k, a) IN (SELECT k, k FROM {s}.feb)
SELECT k FROM (SELECT k, a FROM {s}.jan UNION SELECT b, b FROM {s}.feb)
SELECT a, b, c FROM (({s}.jan j CROSS JOIN {s}.feb f) RIGHT JOIN (SELECT c FROM {s}.mar) m ON c = b)
TABLE {s}.jan
FROM {s}.jan
FROM {s}.t |> WHERE amount > 0 |> SELECT shop, amount * 2 AS twice, id |> WHERE twice > 4
FROM {s}.t AS q |> WHERE q.amount > 0 OR q.id = 2 |> WHERE q.shop = 'n' |> SELECT q.id, name |> WHERE q.id > 1
TABLE {s}.t |> EXTEND amount + 1 AS more, more * 2 AS twice |> SET amount = more, v = amount + twice |> SELECT id, amount, v, twice
FROM {s}.jan |> DROP a |> AS q |> SELECT q.k, q.b__c
FROM {s}.t |> AGGREGATE sum(amount) AS total, count(*) AS n GROUP BY shop, year(d) AS y |> WHERE n > 0 |> EXTEND total / n AS each
FROM {s}.t |> WHERE b |> AGGREGATE GROUP BY shop
FROM {s}.t |> AGGREGATE sum(amount) AS s, max(x)
FROM {s}.jan |> JOIN {s}.feb USING (k) |> FULL JOIN {s}.mar USING (k) |> SELECT k, b, c
FROM {s}.jan j |> WHERE j.k > 0 |> LEFT JOIN {s}.feb f ON j.k = f.k AND f.b > 1 |> SELECT j.k, f.b |> UNION ALL SELECT k, c FROM {s}.mar |> WHERE k < 4
FROM {s}.jan |> LEFT ANTI JOIN {s}.feb USING (k) |> EXCEPT TABLE {s}.jan |> INTERSECT ALL (FROM {s}.jan |> WHERE k > 1)
FROM {s}.t |> SET name = upper(name), shop = (SELECT max(b) FROM {s}.feb WHERE k = id)::string |> SELECT id, name, shop
FROM {s}.t |> WHERE shop IS NOT NULL |> ORDER BY amount DESC, id |> LIMIT 2 |> SELECT id, amount
FROM {s}.t |> SELECT shop, amount, b |> PIVOT (sum(amount) FOR b IN (true AS t, false AS f)) |> WHERE t > 0
SELECT k, a FROM {s}.jan |> WHERE k IN (FROM {s}.feb |> SELECT k |> WHERE k > 1) |> SELECT DISTINCT a
WITH q AS (FROM {s}.jan |> SELECT k, a + 1 AS n) SELECT q.k, n, b FROM q JOIN (TABLE {s}.feb |> EXTEND b + k AS m) f ON q.k = f.k
VALUES (1, 'x'), (2, 'y') AS w(k, t) |> LEFT JOIN {s}.jan USING (k) |> SELECT k, t, a
FROM {s}.t |> SELECT id, shop, sum(amount) OVER w AS s WINDOW w AS (PARTITION BY shop ORDER BY id) |> WHERE s > 5
""".strip().splitlines()


@pytest.mark.parametrize("part", range(PARTS))
def test_changed_rows_are_computed_by_what_the_user_wrote(engine, schema, part):
    spark, at = engine.spark, f"lake.{schema}"
    _run(spark, TABLES, at)
    texts = enumerate(VIEWS[part::PARTS])
    views = {f"{at}.v{number}": text.format(s=at) for number, text in texts}
    for name, text in views.items():
        engine.create_materialized_view(name, text, refresh_mode="incremental_strict")
    for changes in ("", *EPOCHS):
        _run(spark, changes, at)
        engine.advance()
        for name, text in views.items():
            assert _rows(spark, f"SELECT * FROM {name}", text) == _rows(spark, text), text


def test_a_text_that_is_deeper_than_pythons_calls_is_compiled(engine, schema):
    spark, at = engine.spark, f"lake.{schema}"
    spark.sql(f"CREATE TABLE {at}.t AS SELECT 1 AS k, 2 AS v")
    anyone = " OR ".join(f"v = {number}" for number in range(480))
    text = f"SELECT k, v FROM {at}.t WHERE {anyone}"
    engine.create_materialized_view(f"{at}.v", text, refresh_mode="incremental_strict")
    spark.sql(f"INSERT INTO {at}.t VALUES (2, 479), (3, 480)")
    engine.advance()
    assert _rows(spark, f"SELECT * FROM {at}.v") == _rows(spark, text)


def _run(spark, statements, at):
    for statement in statements.format(s=at).split(";"):
        if statement.strip():
            spark.sql(statement)


def _rows(spark, query, like=None):
    """The rows of a query; of a view's table without the columns that the engine keeps there."""
    frame = spark.sql(query)
    shown = len(spark.sql(like).columns) if like else len(frame.columns)
    return sorted(re.sub(r"\w+=", "", repr(tuple(row)[:shown])) for row in frame.collect())
