select p.id, p.name, p.starttime
from (
  select id, name, window.start as starttime, window.end as endtime
  from {nexmark}.person
  group by id, name, window(ts, '10 seconds')
) p
join (
  select seller, window.start as starttime, window.end as endtime
  from {nexmark}.auction
  group by seller, window(ts, '10 seconds')
) a on p.id = a.seller and p.starttime = a.starttime and p.endtime = a.endtime
