"""What a view compiles to: its mode, its reasons, and the program that is printed is what runs."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.runtime.refresh.spark_program import SparkProgram

INCREMENTAL = {
    "filter": "SELECT id, amount FROM {s}.orders WHERE qty > 1",
    "fold": "SELECT u.city, count(*) AS n, sum(o.amount) AS total, avg(o.qty) AS q, max(o.qty) AS m"
    " FROM {s}.orders o JOIN {s}.users u ON u.id = o.user_id GROUP BY u.city",
    "having": "SELECT user_id, sum(price) AS p FROM {s}.orders GROUP BY user_id HAVING count(*) > 1",
    "rows": "SELECT a.id, b.id AS other FROM {s}.orders a JOIN {s}.orders b ON a.user_id = b.user_id",
    "nested": "WITH t AS (SELECT user_id, sum(qty) AS q FROM {s}.orders GROUP BY user_id),"
    " g AS (SELECT avg(q) AS m FROM t) SELECT t.user_id, t.q FROM t CROSS JOIN g WHERE t.q > g.m",
    "union": "SELECT DISTINCT city AS c FROM {s}.users UNION ALL SELECT '{{x}}' FROM {s}.orders",
    "global": "SELECT count(*) AS n, sum(qty) AS q, min(price) AS p FROM {s}.orders",
    "left join": "SELECT u.id, o.qty FROM {s}.users u LEFT JOIN {s}.orders o ON o.user_id = u.id AND o.qty > 1",
    "full join": "SELECT u.id, o.qty FROM {s}.users u FULL JOIN {s}.orders o ON o.user_id = u.id AND o.qty > u.id",
    "not in": "SELECT id FROM {s}.users WHERE id NOT IN (SELECT user_id FROM {s}.orders WHERE qty > 1)",
    "scalar": "SELECT id, (SELECT count(*) FROM {s}.orders o WHERE o.user_id = u.id) AS n FROM {s}.users u WHERE id < (SELECT avg(qty) + 3 FROM {s}.orders)",
    "correlated group": "SELECT id FROM {s}.users u WHERE 2 IN (SELECT max(qty) FROM {s}.orders o WHERE o.user_id = u.id GROUP BY amount HAVING count(*) > 0)",
    "correlated first": "SELECT id, (SELECT qty FROM {s}.orders o WHERE o.user_id < u.id ORDER BY price DESC LIMIT 1) AS q FROM {s}.users u",
    "correlated union": "SELECT id FROM {s}.users u WHERE EXISTS (SELECT 1 FROM {s}.orders o WHERE o.user_id = u.id UNION ALL SELECT 2)",
    "lateral distinct": "SELECT u.id, x.qty FROM {s}.users u LEFT JOIN LATERAL (SELECT DISTINCT qty FROM {s}.orders o WHERE o.user_id = u.id) x ON true",
    "pivot": "SELECT * FROM (SELECT user_id, qty, amount FROM {s}.orders) PIVOT (sum(amount) AS a, count(*) AS n FOR qty IN (1, 2 AS two, NULL))",
    "unpivot": "SELECT * FROM {s}.orders UNPIVOT INCLUDE NULLS (value FOR what IN (qty, user_id AS `the user`))",
    "window": "SELECT id, rank() OVER (PARTITION BY user_id ORDER BY qty) AS r, sum(qty) OVER (PARTITION BY qty) AS s FROM {s}.orders",
    "limit": "SELECT id FROM {s}.orders ORDER BY qty DESC LIMIT 3",
    "rollup": "SELECT user_id, qty, count(*) AS n FROM {s}.orders GROUP BY ROLLUP (user_id, qty)",
    "except": "SELECT user_id FROM {s}.orders EXCEPT ALL SELECT id FROM {s}.users",
    "generator": "SELECT id, explode(sequence(0, qty)) AS e FROM {s}.orders",
    "statistics": "SELECT user_id, stddev(qty) AS s, mean(qty) AS m, collect_list(qty) AS l FROM {s}.orders GROUP BY user_id",
    "window over all": "SELECT id, row_number() OVER (ORDER BY id) AS r FROM {s}.orders",
    "hidden key": "SELECT count(*) AS n FROM {s}.orders GROUP BY user_id",
}
FULL = {
    "nth_value() over a frame by RANGE": "SELECT nth_value(qty, 2) OVER (PARTITION BY user_id ORDER BY qty) AS q FROM {s}.orders",
    "WITH RECURSIVE": "WITH RECURSIVE r AS (SELECT id AS n FROM {s}.orders UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
    "TABLESAMPLE": "SELECT id FROM {s}.orders TABLESAMPLE (10 PERCENT)",
    "LIMIT of a correlated set operation": "SELECT id FROM {s}.users u WHERE EXISTS (SELECT 1 FROM {s}.orders o WHERE o.user_id = u.id UNION ALL SELECT 2 LIMIT 1)",
    "PIVOT": "SELECT city FROM {s}.users u JOIN {s}.orders o ON o.user_id = u.id PIVOT (sum(qty) FOR amount IN (1 AS one))",
    "current_date()": "SELECT id, current_date() AS d FROM {s}.orders",
    "rand()": "SELECT id, rand() AS r FROM {s}.orders",
    "percentile_approx()": "SELECT p + 1 AS p FROM (SELECT user_id, percentile_approx(qty, 0.5) AS p FROM {s}.orders GROUP BY user_id) x JOIN {s}.users u ON u.id = x.user_id",
    "session_window()": "SELECT session_window(ts, '5 minutes').start AS w, count(*) AS n FROM (SELECT timestamp_seconds(id) AS ts FROM {s}.orders) x GROUP BY session_window(ts, '5 minutes')",
}


@pytest.fixture
def shop(engine, schema):
    s = f"lake.{schema}"
    engine.spark.sql(
        f"CREATE TABLE {s}.orders (id INT, user_id INT, amount DECIMAL(10,2), qty INT, price DOUBLE)"
    )
    engine.spark.sql(f"CREATE TABLE {s}.users (id INT, city STRING)")
    engine.spark.sql(
        f"INSERT INTO {s}.orders SELECT id, id % 5, id / 3, id % 4, id / 4 FROM range(40)"
    )
    engine.spark.sql(f"INSERT INTO {s}.users VALUES (0, 'a'), (1, 'b'), (2, 'a'), (3, NULL)")
    return s


class PrintedProgram(SparkProgram):
    """Runs the text of a program."""

    def run(self, plan):
        module: dict = {}
        exec(compile(plan.program, "program", "exec"), module)  # noqa: S102 - our own output
        module["advance"](self.runner)
        return self.relations.outcome


def sql_of(text, s):
    return text.replace("{s}", s).replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize("operator", FULL)
def test_what_is_not_covered_runs_in_full_and_names_the_operator(engine, shop, operator):
    plan = engine.compile(sql_of(FULL[operator], shop))
    assert plan.mode == "full"
    assert plan.reasons[0].lower().startswith(operator.lower())
    assert plan.steps == ()


def test_every_covered_query_runs_as_its_printed_program(engine, shop, monkeypatch):
    """The module text in `program` and the steps that an epoch walks do the same."""
    for number, text in enumerate(INCREMENTAL.values()):
        engine.create_materialized_view(f"{shop}.v{number}", sql_of(text, shop))

    monkeypatch.setattr(engine.warehouse, "programs", PrintedProgram)
    engine.spark.sql(
        f"INSERT INTO {shop}.orders VALUES (90, 1, 1.5, 9, 0.25), (91, 3, NULL, 1, 2)"
    )
    engine.spark.sql(f"UPDATE {shop}.users SET city = 'c' WHERE id = 1")
    engine.spark.sql(f"DELETE FROM {shop}.orders WHERE id < 4")
    report = engine.advance()
    for number, name in enumerate(INCREMENTAL):
        table = f"{shop}.v{number}"
        assert report.tables[table].mode != "full", name
        assert engine.verify(table) == [], name


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_plan_comes_back_from_json_as_it_was(engine, shop, name):
    plan = engine.compile(sql_of(INCREMENTAL[name], shop), into=f"{shop}.v")
    assert plan.mode == "incremental", plan.reasons
    assert CompiledPlan.from_stored(plan.to_stored()) == plan
    assert f"{shop}.v" in plan.explain()
    assert PlanDocument.from_json(plan.to_json()) == plan.document


def test_the_engine_s_own_columns_do_not_show(engine, shop):
    engine.create_materialized_view(f"{shop}.v", sql_of(INCREMENTAL["hidden key"], shop))
    assert engine.sql(f"SELECT * FROM {shop}.v").columns == ["n"]
    engine.create_materialized_view(f"{shop}.w", f"SELECT * FROM {shop}.v WHERE n > 1")
    assert engine.spark.table(f"{shop}.w").columns == ["n"]


def test_incremental_strict_refuses_with_the_reason(engine, shop):
    with pytest.raises(Exception, match=r"INCREMENTAL_IMPOSSIBLE.*rand\(\)"):
        engine.compile(sql_of(FULL["rand()"], shop), refresh_mode="incremental_strict")


def test_a_time_window_is_stored_by_what_is_shown_of_it(engine, shop):
    source = f"(SELECT timestamp_seconds(id) AS ts, qty FROM {shop}.orders) GROUP BY window(ts, '9 seconds')"
    shown = {"window.end AS e": ["e", "n"], "window.start AS a, window.end AS e": ["a", "e", "n"]}
    for number, (items, columns) in enumerate(shown.items()):
        table = f"{shop}.v{number}"
        engine.create_materialized_view(table, f"SELECT {items}, count(*) AS n FROM {source}")
        assert engine.spark.table(table).columns == columns
