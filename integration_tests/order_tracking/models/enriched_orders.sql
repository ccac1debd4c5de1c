-- When was what placed, and when shipped? Orders wait seven days for their shipment, a shipment waits
-- one day for its order: the plan file says so, since it was edited after `dbt compile` wrote it.
{{ config(plan='plans/enriched_orders.json') }}
select
  s.order_line_id, s.order_id, s.product_id,
  o.gmt_create as order_placed_ts,
  s.gmt_modified as order_shipped_ts
from {{ source('raw', 'orders') }} o
join (
  select * from {{ source('raw', 'logistics') }} where shipment_status = 'SHIPPED'
) s on o.order_id = s.order_id
