select l.airport, l.landed, l.late, l.late_percent, e.late as expected
from {{ ref('late_share') }} l
full join (
  select dest, count_if(arr_delay > 15) as late
  from {{ source('flights_raw', 'flights') }}
  where arr_delay is not null
  group by dest
) e on e.dest = l.airport
where l.late is distinct from e.late or abs(l.late_percent * l.landed - 100 * l.late) > l.landed * 0.005
