-- Nothing of this project is a day old: what it remembers is everything.
with expected as (
  select l.order_line_id, o.gmt_create
  from {{ source('raw', 'orders') }} o
  join {{ source('raw', 'logistics') }} l on l.order_id = o.order_id
  where l.shipment_status = 'SHIPPED'
), found as (
  select order_line_id, order_placed_ts from {{ ref('enriched_orders') }}
)
(select * from (select * from expected except all select * from found))
union all
(select * from (select * from found except all select * from expected))
