-- Each flight with the weather in the hour of its departure.
select
  f.flight_id,
  f.flight_date,
  f.carrier,
  f.origin,
  f.dep_delay,
  w.temp,
  w.precip,
  w.visib
from {{ source('flights_raw', 'flights') }} f
join {{ source('flights_raw', 'weather') }} w on w.origin = f.origin and w.time_hour = f.time_hour
