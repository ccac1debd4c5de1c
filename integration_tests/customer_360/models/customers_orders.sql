{{ config(sink='customers', columns=['orders', 'spent', 'last_order']) }}
-- a view of its own, which others may read too
select customer_id, count(*) as orders, sum(amount) as spent, max(ordered_on) as last_order
from {{ source('raw', 'orders') }}
group by customer_id
