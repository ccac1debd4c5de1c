-- Routes with at least 3,000 flights: they come and go as flights do.
select origin, dest, count(*) as flights, sum(distance) as miles
from {{ source('flights_raw', 'flights') }}
group by origin, dest
having count(*) >= 3000
