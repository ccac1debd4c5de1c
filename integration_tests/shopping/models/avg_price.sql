select
  a.user_id,
  a.item_id,
  a.total_amount,
  p.total_price,
  cast(p.total_price / nullif(a.total_amount, 0) as decimal(18, 5)) as avg_price
from {{ ref('user_item_amount') }} a
join {{ ref('user_item_price') }} p on p.user_id = a.user_id and p.item_id = a.item_id
