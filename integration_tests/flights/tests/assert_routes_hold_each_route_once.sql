select origin, dest, carrier, sum(in_flights) as in_flights, sum(in_view) as in_view
from (
  select distinct origin, dest, carrier, 1 as in_flights, 0 as in_view
  from {{ source('flights_raw', 'flights') }}
  union all
  select origin, dest, carrier, 0, 1 from {{ ref('routes') }}
) both_sides
group by origin, dest, carrier
having sum(in_flights) <> 1 or sum(in_view) <> 1
