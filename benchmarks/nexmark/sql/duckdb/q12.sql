select
  bidder,
  count(*) as bid_count,
  time_bucket(interval 10 seconds, arrived) as starttime,
  time_bucket(interval 10 seconds, arrived) + interval 10 seconds as endtime
from {nexmark}.bid
group by all
