select s.flights, e.flights as expected_flights, s.seats, e.seats as expected_seats
from (select sum(flights) as flights, sum(seats) as seats from {{ ref('seats_flown') }}) s
cross join (
  select count(*) as flights, sum(p.seats) as seats
  from {{ source('flights_raw', 'flights') }} f
  join {{ source('flights_raw', 'planes') }} p on p.tailnum = f.tailnum
  where f.dep_time is not null
) e
where s.flights <> e.flights or s.seats <> e.seats
