"""A small shop of seven models that runs on every platform, and what it must be after each run."""

from __future__ import annotations

from typing import Any

FILES = {
    "seeds/customers.csv": "id,city\n1,Rome\n2,Oslo\n3,Rome\n",
    "models/paid.sql": """
{{ config(materialized=var('simple', 'view')) }}
select * from {{ ref('orders') }} where paid
""",
    "models/by_city.sql": """
{{ config(materialized='table') }}
select c.city, count(*) as orders from {{ ref('orders') }} o
join {{ ref('customers') }} c on c.id = o.customer group by c.city
""",
    "models/kept.sql": """
{{ config(materialized='incremental', unique_key='id', incremental_strategy='merge') }}
select id, amount from {{ ref('orders') }}
""",
    "models/per_customer.sql": """
{{ config(materialized='materialized_view') }}
select customer, count(*) as orders, sum(amount) as total from {{ ref('orders') }} group by customer
""",
    "models/cities.sql": """
{{ config(materialized='materialized_view', state='all') }}
select c.city, sum(p.total) as total from {{ ref('per_customer') }} p
join {{ ref('customers') }} c on c.id = p.customer group by c.city
""",
    "models/best.sql": """
{{ config(materialized='materialized_view') }}
select * from (
  select id, customer, amount,
         row_number() over (partition by customer order by amount desc, id) as place
  from {{ ref('orders') }}) where place = 1
""",
    "models/clicks.sql": """
{{ config(materialized='streaming_table', key='id', sequence_by='_n', leave_out=['_n']) }}
select id, page, _n from {{ source('web', 'clicks') }}
""",
    "models/sources.yml": """
sources:
  - name: web
    tables:
      - name: clicks
        config:
          meta:
            streamsql:
              connector: datagen
              options:
                rows_per_barrier: 20
                generate:
                  id: {uniform: {min: 1, max: 9}}
                  page: {choice: [a, b]}
        columns:
          - {name: id, data_type: bigint}
          - {name: page, data_type: string}
""",
    "models/schema.yml": """
models:
  - name: per_customer
    columns:
      - name: customer
        data_tests: [unique, not_null]
""",
    "snapshots/seen.sql": """
{% snapshot seen %}
{{ config(strategy='check', unique_key='id', check_cols=['amount'], target_schema='shop') }}
select id, amount from {{ ref('orders') }}
{% endsnapshot %}
""",
}
ORDERS = (
    "id,customer,amount,paid\n1,1,5,true\n2,1,7,false\n3,2,4,true\n",
    "id,customer,amount,paid\n1,1,6,true\n3,2,4,true\n4,3,9,true\n5,2,1,false\n",
)
"""The seed of each run: the second one changes, deletes and adds rows."""
VIEWS = ("per_customer", "cities", "best")
CITIES = ([("Oslo", 4), ("Rome", 12)], [("Oslo", 5), ("Rome", 15)])
"""The rows of `cities` after each run."""


def write(project: Any, run: int) -> None:
    """The project's files before a run, counted from 0."""
    for name, text in FILES.items():
        project.write(name, text)
    project.write("seeds/orders.csv", ORDERS[run])
