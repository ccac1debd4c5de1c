"""Keys under `meta.streamsql.keys`, as a user declares them: relied on, checked by `verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.stored_definition import definition_of

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[3] / "docs" / "keys.md").read_text(encoding="utf-8")
SOURCES = PAGE.partition("```yaml\n")[2].partition("```")[0]
UNIQUE = "- {column: id, rely: true}"
FOREIGN = "- {column: order_id, references: orders, to: id, rely: true}"
CONTRACT = PAGE.split("```yaml\n")[2].partition("```")[0]
"""Of a model `lines`."""
VIEW = """
{{ config(materialized='materialized_view') }}
select o.customer, l.price
from {{ source('raw', 'orders') }} o join {{ source('raw', 'lines') }} l on l.order_id = o.id
"""


@pytest.fixture
def shop(project):
    def declare(orders=UNIQUE, lines=FOREIGN):
        text = SOURCES.replace(UNIQUE, orders).replace(FOREIGN, lines)
        project.write("models/sources.yml", text)

    project.write("seeds/orders.csv", "id,customer\n1,ann\n2,bob\n")
    project.write("seeds/lines.csv", "order_id,price\n1,5\n1,6\n2,7\n")
    assert project.dbt("seed").ok
    project.write("models/sold.sql", VIEW)
    project.declare = declare
    return project


def keys(shop):
    return list(map(str, definition_of(shop.host.engine.store.jobs()["lake.shop.sold"]).keys))


def test_what_is_declared_is_kept_with_the_view_and_changes_none_of_its_rows(shop):
    shop.declare()
    assert shop.dbt("run").messages["sold"].startswith("FULL +3 -0")
    assert keys(shop) == [
        "lake.shop.lines.order_id references lake.shop.orders.id",
        "lake.shop.orders.id is unique",
    ]
    shop.declare(lines=FOREIGN.replace("true", "false"))
    again = shop.dbt("run")
    assert again.messages["sold"].startswith("NOOP"), again.messages
    assert keys(shop) == ["lake.shop.orders.id is unique"], "it is not to be relied on"


def test_a_key_that_does_not_hold_is_named_by_verify(shop):
    shop.declare()
    assert shop.dbt("run").ok
    assert shop.host.engine.verify("lake.shop.sold") == []
    shop.sql("INSERT INTO lake.shop.orders VALUES (2, 'eve')")
    shop.sql("INSERT INTO lake.shop.lines VALUES (9, 1), (NULL, 2)")
    assert shop.dbt("run").ok
    with pytest.raises(StreamSqlError) as caught:
        shop.host.engine.verify("lake.shop.sold")
    assert caught.value.code == "KEY_UNTRUE"
    assert caught.value.given == (
        "lake.shop.orders.id is not unique: 2; "
        "lake.shop.lines.order_id references lake.shop.orders.id, which lacks values: 9"
    )


def test_everything_wrong_with_keys_is_said_at_once(shop):
    shop.declare("column: id", "[{column: order_id, references: orders}, {rely: yes, col: 1}]")
    done = shop.dbt("run")
    assert not done.ok
    message = done.messages["sold"]
    for part in (
        "source.shop.raw.orders: not a list of keys",
        "raw.lines: key 1: `references` and `to` belong together",
        "raw.lines: key 2: unknown: col",
        "CONFIG_INVALID",
    ):
        assert part in message, message


def test_the_keys_of_a_contract_are_relied_on_where_the_model_says_so(project):
    project.write("seeds/raw_orders.csv", "id,customer\n1,ann\n2,bob\n")
    project.write("seeds/raw_lines.csv", "order_id,price\n1,5\n1,6\n2,7\n")
    config = "{{ config(materialized='materialized_view') }}\n"
    for name in ("orders", "lines"):
        project.write(f"models/{name}.sql", f"{config}select * from {{{{ ref('raw_{name}') }}}}")
    orders = """
  - name: orders
    config: {contract: {enforced: true}, meta: {streamsql: {keys: contract}}}
    constraints: [{type: primary_key, columns: [id]}]
    columns: [{name: id, data_type: int}, {name: customer, data_type: string}]
"""
    project.write("models/contract.yml", CONTRACT.rstrip() + orders)
    sold = VIEW.replace("source('raw', 'orders')", "ref('orders')")
    project.write("models/sold.sql", sold.replace("source('raw', 'lines')", "ref('lines')"))
    done = project.dbt("build")
    assert done.ok, done.messages
    declared = [
        "lake.shop.lines.order_id references lake.shop.orders.id",
        "lake.shop.orders.id is unique",
    ]
    assert keys(project) == declared
    # Of the models that have the keys, nothing is compiled in this run.
    assert project.dbt("run", "--select", "sold").ok
    assert keys(project) == declared
    project.write(
        "models/contract.yml", CONTRACT.replace("foreign_key, to", "not_null, to") + orders
    )
    message = project.dbt("run", "--select", "sold").messages["sold"]
    assert "model.shop.lines: no key of one column is in its contract" in message, message
