with counts as (
  select auction, count(*) as num, time_bucket(interval 2 seconds, ts) - k * interval 2 seconds as starttime
  from {nexmark}.bid, range(5) as hop(k)
  group by all
)
select auction, num, starttime
from counts
qualify num >= max(num) over (partition by starttime)
