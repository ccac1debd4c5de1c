-- Seats flown for each airline on the planes of each manufacturer.
select p.manufacturer, a.name as airline, count(*) as flights, sum(p.seats) as seats
from {{ source('flights_raw', 'flights') }} f
join {{ source('flights_raw', 'planes') }} p on p.tailnum = f.tailnum
join {{ source('flights_raw', 'airlines') }} a on a.carrier = f.carrier
where f.dep_time is not null
group by p.manufacturer, a.name
