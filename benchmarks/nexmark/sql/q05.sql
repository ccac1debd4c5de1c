with counts as (
  select auction, count(*) as num, window.start as starttime, window.end as endtime
  from {nexmark}.bid
  group by auction, window(ts, '10 seconds', '2 seconds')
)
select c.auction, c.num, c.starttime
from counts c
join (select starttime, endtime, max(num) as maxn from counts group by starttime, endtime) m
  on c.starttime = m.starttime and c.endtime = m.endtime and c.num >= m.maxn
