select distinct p.id, p.name, time_bucket(interval 10 seconds, p.ts) as starttime
from {nexmark}.person p
join {nexmark}.auction a
  on p.id = a.seller
  and time_bucket(interval 10 seconds, p.ts) = time_bucket(interval 10 seconds, a.ts)
