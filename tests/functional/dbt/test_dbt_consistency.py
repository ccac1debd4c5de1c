"""What a dbt query reads is chosen by profile, variable, or node; a run sees what it has staged."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} select "
BOTH = "select a.n as orders, b.total from lake.shop.counted a cross join lake.shop.summed b"


@pytest.fixture
def shop(project):
    """Two views over one table, of which the second is behind."""
    project.write("seeds/orders.csv", "id,amount\n1,10\n")
    assert project.dbt("seed").ok
    project.write("models/counted.sql", f"{VIEW} count(*) as n from lake.shop.orders")
    project.write("models/summed.sql", f"{VIEW} sum(amount) as total from lake.shop.orders")
    assert project.dbt("run").ok
    project.sql("insert into lake.shop.orders values (2, 20)")
    assert project.dbt("run", "-s", "counted").ok
    return project


def test_dbt_show_reads_one_barrier_unless_told_otherwise(shop):
    assert shop.show(BOTH) == [(1, 10)]
    assert shop.show(BOTH, "--vars", "{consistency: repeatable_read}") == [(1, 10)]
    assert shop.show(BOTH, "--vars", "{consistency: read_uncommitted}") == [(2, 10)]
    told = "{{ config(consistency='read_uncommitted') }}" + BOTH
    assert shop.show(told) == [(2, 10)]
    assert shop.show("select * from lake.shop.counted") == [(2,)]
    assert shop.dbt("run").ok
    assert shop.show(BOTH) == [(2, 30)]


def test_dbt_show_tells_the_barrier_when_it_is_not_the_newest_of_a_table(shop):
    told = shop.dbt("show", "--inline", BOTH).text
    assert "Shown as of barrier 1, where these tables are consistent" in told
    assert "Changed since: lake.shop.counted." in told
    beside = "select * from lake.shop.summed, lake.shop.orders"
    assert "Changed since: lake.shop.orders." in shop.dbt("show", "--inline", beside).text
    for query in (
        "select * from lake.shop.counted",
        "select * from lake.shop.orders",
        "{{ config(consistency='read_uncommitted') }}" + BOTH,
    ):
        assert "Shown as of" not in shop.dbt("show", "--inline", query).text
    shop.write("models/summed.sql", VIEW + "sum(amount / (id - 2)) as total from lake.shop.orders")
    assert not shop.dbt("run").ok
    assert "Shown as of barrier 1" in shop.dbt("show", "--inline", beside).text
    shop.write("models/summed.sql", VIEW + "sum(amount) as total from lake.shop.orders")
    assert shop.dbt("run").ok
    for query in (BOTH, beside):
        assert "Shown as of" not in shop.dbt("show", "--inline", query).text


def test_data_tests_read_one_barrier_and_their_config_is_heard(shop):
    wrong = (
        "select 1 from lake.shop.counted a, lake.shop.summed b where b.total <> 5 * n * (n + 1)"
    )
    shop.write("tests/agree.sql", wrong)
    shop.write("tests/mixed.sql", "{{ config(consistency='read_uncommitted') }}" + wrong)
    shop.write(
        "tests/kept.sql",
        "{{ config(consistency='read_uncommitted', store_failures=true) }}" + wrong,
    )
    assert shop.dbt("test").statuses == {"agree": "pass", "mixed": "fail", "kept": "fail"}


def test_models_of_a_run_see_what_it_staged_and_others_what_they_ask_for(shop):
    for name, config in {
        "staged": "materialized='table'",
        "held": "materialized='table', consistency='repeatable_read'",
    }.items():
        shop.write(
            f"models/{name}.sql",
            f"{{{{ config({config}) }}}} -- depends_on: {{{{ ref('counted') }}}} {{{{ ref('summed') }}}}\n"
            f"{BOTH}",
        )
    assert shop.dbt("run").ok
    assert shop.sql("select * from lake.shop.staged") == [(2, 30)]
    assert shop.sql("select * from lake.shop.held") == [(1, 10)]


def test_python_models_read_one_barrier(shop):
    shop.write(
        "models/joined.py",
        "def model(dbt, session):\n"
        "    dbt.config(materialized='table')\n"
        "    return dbt.ref('counted').crossJoin(dbt.ref('summed'))\n",
    )
    done = shop.dbt("run", "-s", "joined")
    assert done.ok, done.messages
    assert shop.sql("select * from lake.shop.joined") == [(1, 10)]


def test_a_bound_on_staleness_fails_the_node_that_has_it(shop):
    bounded = "{{ config(max_staleness='0 seconds') }} " + BOTH
    done = shop.dbt("show", "--inline", bounded)
    assert not done.ok
    assert "CONSISTENCY_UNAVAILABLE" in done.text + str(done.messages)
    assert shop.dbt("run").ok
    assert shop.show(bounded) == [(2, 30)]


def test_mistakes_are_told_with_what_is_allowed(shop):
    for config, given in (
        ("consistency='serializable'", "serializable"),
        ("max_staleness='soon'", "soon"),
        ("max_staleness=-1", "-1"),
    ):
        for kind in ("table", "materialized_view"):
            shop.write(
                "models/wrong.sql",
                f"{{{{ config(materialized='{kind}', {config}) }}}} select 1 as a",
            )
            done = shop.dbt("run", "-s", "wrong")
            assert not done.ok
            assert "CONFIG_INVALID" in done.messages["wrong"]
            assert given in done.messages["wrong"]
