select
  bidder,
  count(*) as bid_count,
  session_window.start as starttime,
  session_window.end as endtime
from {nexmark}.bid
group by bidder, session_window(ts, '10 seconds')
