-- The wide table by hand: everyone whom some system knows, joined with what each says.
with keys as (
  select customer_id from {{ source('raw', 'crm') }}
  union select visitor_id from {{ source('raw', 'web') }}
  union select customer_id from {{ source('raw', 'orders') }}
  union select customer_id from {{ source('raw', 'support') }}
), bought as (
  select customer_id, count(*) as orders, sum(amount) as spent, max(ordered_on) as last_order
  from {{ source('raw', 'orders') }} group by customer_id
), expected as (
  select
    k.customer_id, c.name,
    c.city, w.country,
    case when s.customer_id is null or c.updated_at >= s.updated_at then c.phone else s.phone end as phone,
    greatest(c.updated_at, s.updated_at) as updated_at,
    w.visits, greatest(w.consent, s.consent) as consent,
    b.orders, b.spent, b.last_order
  from keys k
  left join {{ source('raw', 'crm') }} c on c.customer_id = k.customer_id
  left join {{ source('raw', 'web') }} w on w.visitor_id = k.customer_id
  left join {{ source('raw', 'support') }} s on s.customer_id = k.customer_id
  left join bought b on b.customer_id = k.customer_id
), found as (
  select
    customer_id, name, address.city, address.country, phone, updated_at,
    visits, consent, orders, spent, last_order
  from {{ ref('customers') }}
)
(select 'missing' as failure, * from (select * from expected except all select * from found))
union all
(select 'not wanted' as failure, * from (select * from found except all select * from expected))
