-- An order may arrive twice within an hour; later it is another one of the same number.
{{ config(state_ttl={'deduplicate': '1 h'}) }}
select order_id, user_id, product_id, num
from (
  select *, row_number() over (partition by order_id order by gmt_create) as rn
  from {{ source('raw', 'orders') }}
)
where rn = 1
