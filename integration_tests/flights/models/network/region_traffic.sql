-- A view over a table and a source. The table is rewritten by every run; what did not change in it
-- changes nothing here.
select d.region, f.origin, count(*) as flights, count(f.arr_time) as landed
from {{ source('flights_raw', 'flights') }} f
join {{ ref('airport_directory') }} d on d.faa = f.dest
group by d.region, f.origin
