-- One row over everything, from another view: both are always of the same barrier.
{{ config(materialized='materialized_view') }}
select sum(orders) as orders, sum(revenue) as revenue
from {{ ref('orders_by_city') }}
