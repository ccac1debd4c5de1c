-- Averages of DOUBLEs may differ in the last bits, never more.
select w.origin, w.flight_date, w.avg_temp, e.avg_temp as expected
from {{ ref('weather_day') }} w
join (
  select f.origin, f.flight_date, avg(r.temp) as avg_temp
  from {{ source('flights_raw', 'flights') }} f
  join {{ source('flights_raw', 'weather') }} r on r.origin = f.origin and r.time_hour = f.time_hour
  group by f.origin, f.flight_date
) e on e.origin = w.origin and e.flight_date = w.flight_date
where abs(w.avg_temp - e.avg_temp) > 0.000001 or (w.avg_temp is null) <> (e.avg_temp is null)
