-- The same question asked with averages; no carrier is so near the mean that rounding decides.
with per_carrier as (
  select carrier, avg(arr_delay) as delay from {{ source('flights_raw', 'flights') }} group by carrier
), expected as (
  select carrier from per_carrier
  where delay > (select avg(arr_delay) from {{ source('flights_raw', 'flights') }})
)
(select carrier from expected except select carrier from {{ ref('carriers_above_average') }})
union all
(select carrier from {{ ref('carriers_above_average') }} except select carrier from expected)
