-- Every plane that flew is either in the register or in unknown_planes, never in both.
select f.tailnum
from (select distinct tailnum from {{ source('flights_raw', 'flights') }} where tailnum is not null) f
left join {{ source('flights_raw', 'planes') }} p on p.tailnum = f.tailnum
left join {{ ref('unknown_planes') }} u on u.tailnum = f.tailnum
where (p.tailnum is null) = (u.tailnum is null)
