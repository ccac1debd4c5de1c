select bidder, count(*) as bid_count, window.start as starttime, window.end as endtime
from {nexmark}.bid
group by bidder, window(arrived, '10 seconds')
