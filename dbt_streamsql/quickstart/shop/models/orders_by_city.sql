-- A join and a grouping. An epoch reads the changed orders, not all of them.
{{ config(materialized='materialized_view') }}
select c.city, o.status, count(*) as orders, sum(o.amount) as revenue
from {{ ref('orders') }} o
join {{ ref('customers') }} c on c.customer = o.customer
group by c.city, o.status
