-- Each flight with the next one of the same plane on the same day. `flights` is read three times.
with following as (
  select
    a.flight_id, a.tailnum, a.flight_date, a.arr_delay, min(b.sched_dep_time) as next_dep_time
  from {{ source('flights_raw', 'flights') }} a
  join {{ source('flights_raw', 'flights') }} b
    on b.tailnum = a.tailnum and b.flight_date = a.flight_date and b.sched_dep_time > a.sched_dep_time
  group by a.flight_id, a.tailnum, a.flight_date, a.arr_delay
)
select
  a.flight_id,
  a.tailnum,
  a.flight_date,
  a.arr_delay,
  b.flight_id as next_flight_id,
  b.origin as next_origin,
  b.dep_delay as next_dep_delay
from following a
join {{ source('flights_raw', 'flights') }} b
  on b.tailnum = a.tailnum and b.flight_date = a.flight_date and b.sched_dep_time = a.next_dep_time
