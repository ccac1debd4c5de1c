-- One report an hour at most: the join neither doubles a flight nor invents one.
select d.flights, w.flights as with_weather, f.flights as scheduled
from (select sum(flights) as flights from {{ ref('weather_day') }}) d
cross join (select count(*) as flights from {{ ref('flight_weather') }}) w
cross join (select count(*) as flights from {{ source('flights_raw', 'flights') }}) f
where d.flights <> w.flights or w.flights > f.flights or w.flights < f.flights * 0.99
