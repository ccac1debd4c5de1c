"""What `adapter.get_relation` finds, without looking through all relations of a schema."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

LOOK = """
{% macro look(name) %}
  {% if execute %}
    {% do log('found ' ~ adapter.get_relation('lake', 'shop', name), info=true) %}
  {% endif %}
{% endmacro %}
"""


@pytest.fixture
def shop(project):
    project.write("seeds/orders.csv", "id\n1\n")
    project.write("seeds/Places.csv", "id\n1\n")
    project.write("macros/look.sql", LOOK)
    assert project.dbt("seed").ok
    return project


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders", "`lake`.`shop`.`orders`"),
        ("Places", "`lake`.`shop`.`Places`"),
        ("nothing", "None"),
    ],
)
def test_a_relation_is_found_by_its_name(shop, name, found):
    shop.write("models/m.sql", f"select 1 as id {{{{ look('{name}') }}}}")
    done = shop.dbt("run")
    assert done.ok, done.text
    assert f"found {found}" in done.text


def test_a_name_of_another_case_is_not_taken_for_it(shop):
    shop.write("models/m.sql", "select 1 as id {{ look('ORDERS') }}")
    done = shop.dbt("run")
    assert not done.ok
    assert "approximate match" in done.text + done.error
