-- No third flight of the same plane lies between a flight and its next leg.
select n.flight_id, n.next_flight_id, b.flight_id as between_them
from {{ ref('next_legs') }} n
join {{ source('flights_raw', 'flights') }} a on a.flight_id = n.flight_id
join {{ source('flights_raw', 'flights') }} c on c.flight_id = n.next_flight_id
join {{ source('flights_raw', 'flights') }} b on b.tailnum = a.tailnum and b.flight_date = a.flight_date
where (b.sched_dep_time > a.sched_dep_time and b.sched_dep_time < c.sched_dep_time)
   or c.sched_dep_time <= a.sched_dep_time
