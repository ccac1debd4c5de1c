-- Carriers whose flights land later than the average flight. Whole numbers are compared crosswise:
-- a division would bring rounding into a comparison.
with per_carrier as (
  select carrier, count(arr_delay) as landed, sum(arr_delay) as minutes
  from {{ source('flights_raw', 'flights') }}
  group by carrier
)
select c.carrier, c.landed, c.minutes
from per_carrier c
join (
  select count(arr_delay) as landed, sum(arr_delay) as minutes
  from {{ source('flights_raw', 'flights') }}
) everyone on c.minutes * everyone.landed > everyone.minutes * c.landed
