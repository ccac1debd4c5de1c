-- How often a plane that came late left late again, per airport.
select
  next_origin as airport,
  count(*) as legs,
  sum(next_dep_delay) as next_dep_delay_minutes,
  max(next_dep_delay) as worst_next_dep_delay
from {{ ref('next_legs') }}
where arr_delay > 15 and next_dep_delay > 15
group by next_origin
