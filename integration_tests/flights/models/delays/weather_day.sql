-- What the weather did to the departures of a day. The average of `temp` is one of DOUBLEs: its last
-- bits depend on the order of adding, so the groups that changed are read again, not added to.
select
  origin,
  flight_date,
  count(*) as flights,
  sum(case when precip > 0 then 1 else 0 end) as flights_in_rain,
  min(visib) as worst_visib,
  avg(temp) as avg_temp,
  sum(dep_delay) as dep_delay_minutes
from {{ ref('flight_weather') }}
group by origin, flight_date
