-- A window: the three largest orders of each city. Only the cities with a changed order are ranked.
{{ config(materialized='materialized_view') }}
select c.city, o.id, o.amount
from {{ ref('orders') }} o
join {{ ref('customers') }} c on c.customer = o.customer
qualify row_number() over (partition by c.city order by o.amount desc, o.id) <= 3
