-- avg_price holds exactly the totals of the two views that it is made of; guests have no average.
with parts as (
  select a.user_id, a.item_id, a.total_amount, p.total_price
  from {{ ref('user_item_amount') }} a
  join {{ ref('user_item_price') }} p on p.user_id = a.user_id and p.item_id = a.item_id
), joined as (
  select user_id, item_id, total_amount, total_price from {{ ref('avg_price') }}
)
(select 'missing' as failure, * from (select * from parts except all select * from joined))
union all
(select 'not wanted' as failure, * from (select * from joined except all select * from parts))
