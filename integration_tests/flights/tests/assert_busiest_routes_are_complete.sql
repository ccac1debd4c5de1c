select coalesce(b.origin, r.origin) as origin, coalesce(b.dest, r.dest) as dest, r.flights, b.flights as in_view
from (
  select origin, dest, count(*) as flights
  from {{ source('flights_raw', 'flights') }}
  group by origin, dest
) r
full join {{ ref('busiest_routes') }} b on b.origin = r.origin and b.dest = r.dest
where (r.flights >= 3000 and b.flights is distinct from r.flights) or (r.flights < 3000 and b.flights is not null)
  or r.flights is null
