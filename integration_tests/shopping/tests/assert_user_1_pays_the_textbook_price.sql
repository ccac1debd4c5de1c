-- 1000 for 100 pieces; after the second purchase 2500 for 300. Nothing in between was ever true.
select 'wrong' as failure, total_amount, total_price, avg_price
from {{ ref('avg_price') }}
where user_id = 1
  and not (total_amount = 100 and total_price = 1000 and avg_price = 10)
  and not (total_amount = 300 and total_price = 2500 and avg_price = 8.33333)
union all
select 'missing', null, null, null
where not exists (select 1 from {{ ref('avg_price') }} where user_id = 1)
