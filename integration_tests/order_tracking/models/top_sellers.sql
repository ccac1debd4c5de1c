-- A product that sold nothing for a day begins again.
{{ config(state_ttl={'aggregates': '24 h'}) }}
select product_id, count(order_id) as order_cnt, sum(num) as quantity_cnt
from {{ ref('first_orders') }}
group by product_id
