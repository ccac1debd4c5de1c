-- Planes that flew and are not in the register.
select f.tailnum, count(*) as flights, min(f.flight_date) as first_seen
from {{ source('flights_raw', 'flights') }} f
left join {{ source('flights_raw', 'planes') }} p on p.tailnum = f.tailnum
where f.tailnum is not null and p.tailnum is null
group by f.tailnum
