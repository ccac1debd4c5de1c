"""What a view compiles to: its mode, its reasons, and the program that is printed is what runs."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.runtime.frames import Frames

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
    "hidden key": "SELECT count(*) AS n FROM {s}.orders GROUP BY user_id",
}
FULL = {
    "LEFT JOIN": "SELECT u.id FROM {s}.users u LEFT JOIN {s}.orders o ON o.user_id = u.id",
    "window function": "SELECT id, row_number() OVER (ORDER BY id) AS r FROM {s}.orders",
    "LIMIT": "SELECT id FROM {s}.orders ORDER BY id LIMIT 3",
    "sub-query in an expression": "SELECT id FROM {s}.orders WHERE qty > (SELECT 1)",
    "EXCEPT": "SELECT id FROM {s}.orders EXCEPT SELECT id FROM {s}.users",
    "current_date()": "SELECT id, current_date() AS d FROM {s}.orders",
    "rand()": "SELECT id, rand() AS r FROM {s}.orders",
    "stddev()": "SELECT stddev(qty) AS s FROM {s}.orders",
    "ROLLUP": "SELECT user_id, count(*) AS n FROM {s}.orders GROUP BY ROLLUP (user_id)",
    "mean()": "SELECT mean(qty) AS m FROM {s}.orders",
    "explode()": "SELECT explode(array(id, qty)) AS e FROM {s}.orders",
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

    def as_text(frames: Frames, plan: CompiledPlan):
        module: dict = {}
        exec(compile(plan.program, "program", "exec"), module)  # noqa: S102 - our own output
        module["advance"](frames)
        return frames.outcome

    monkeypatch.setattr(Frames, "run", as_text)
    engine.spark.sql(
        f"INSERT INTO {shop}.orders VALUES (90, 1, 1.5, 9, 0.25), (91, 3, NULL, 1, 2)"
    )
    engine.spark.sql(f"UPDATE {shop}.users SET city = 'c' WHERE id = 1")
    engine.spark.sql(f"DELETE FROM {shop}.orders WHERE id < 4")
    report = engine.advance()
    for number, name in enumerate(INCREMENTAL):
        table = f"{shop}.v{number}"
        assert report.tables[table].mode in {"append", "incremental"}, name
        assert engine.verify(table) == [], name


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_plan_comes_back_from_json_as_it_was(engine, shop, name):
    plan = engine.compile(sql_of(INCREMENTAL[name], shop), into=f"{shop}.v")
    assert plan.mode == "incremental", plan.reasons
    assert CompiledPlan.from_json(plan.to_json()) == plan
    assert f"{shop}.v" in plan.explain()


def test_the_engine_s_own_columns_do_not_show(engine, shop):
    engine.create_materialized_view(f"{shop}.v", sql_of(INCREMENTAL["hidden key"], shop))
    assert engine.sql(f"SELECT * FROM {shop}.v").columns == ["n"]
    engine.create_materialized_view(f"{shop}.w", f"SELECT * FROM {shop}.v WHERE n > 1")
    assert engine.spark.table(f"{shop}.w").columns == ["n"]


def test_incremental_strict_refuses_with_the_reason(engine, shop):
    with pytest.raises(Exception, match=r"INCREMENTAL_IMPOSSIBLE.*LEFT JOIN"):
        engine.compile(sql_of(FULL["LEFT JOIN"], shop), refresh_mode="incremental_strict")
