with expected as (
  select user_id, item_id, sum(amount) as total_amount, sum(price) as total_price
  from {{ source('shopping_raw', 'shopping') }}
  group by user_id, item_id
), found as (
  select a.user_id, a.item_id, a.total_amount, p.total_price
  from {{ ref('user_item_amount') }} a
  join {{ ref('user_item_price') }} p on p.user_id <=> a.user_id and p.item_id <=> a.item_id
)
(select 'missing' as failure, * from (select * from expected except all select * from found))
union all
(select 'not wanted' as failure, * from (select * from found except all select * from expected))
