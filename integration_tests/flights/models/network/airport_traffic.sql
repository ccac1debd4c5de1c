-- Departures and arrivals of each airport.
select airport, sum(departures) as departures, sum(arrivals) as arrivals
from (
  select origin as airport, 1 as departures, 0 as arrivals
  from {{ source('flights_raw', 'flights') }}
  where dep_time is not null
  union all
  select dest as airport, 0 as departures, 1 as arrivals
  from {{ source('flights_raw', 'flights') }}
  where arr_time is not null
) movements
group by airport
