-- The names an analyst uses. A plain view: it stores nothing.
select
  flight_id,
  flight_date,
  carrier,
  tailnum,
  origin,
  dest,
  dep_delay,
  arr_delay,
  dep_time is null as cancelled,
  dep_time is not null and arr_delay is null as diverted
from {{ source('flights_raw', 'flights') }}
