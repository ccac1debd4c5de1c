select p.legs, n.legs as expected
from (select coalesce(sum(legs), 0) as legs from {{ ref('passed_on_delays') }}) p
cross join (
  select count(*) as legs from {{ ref('next_legs') }} where arr_delay > 15 and next_dep_delay > 15
) n
where p.legs <> n.legs
