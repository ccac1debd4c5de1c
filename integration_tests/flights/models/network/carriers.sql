-- The carriers by name.
select a.carrier, a.name, count(*) as flights, count(f.dep_time) as left_the_gate, sum(f.distance) as miles
from {{ source('flights_raw', 'flights') }} f
join {{ source('flights_raw', 'airlines') }} a on a.carrier = f.carrier
group by a.carrier, a.name
