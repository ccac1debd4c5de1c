-- The first five. Who drops out makes room for the sixth.
{{ config(materialized='materialized_view') }}
select c.name, c.city, sum(o.amount) as revenue
from {{ ref('orders') }} o
join {{ ref('customers') }} c on c.customer = o.customer
group by c.name, c.city
order by revenue desc
limit 5
