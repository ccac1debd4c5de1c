select
  auction,
  bidder,
  0.908 * price as price,
  case
    when hour(ts) >= 8 and hour(ts) <= 18 then 'dayTime'
    when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime'
    else 'otherTime'
  end as bid_time_type,
  ts,
  extra,
  length(extra) - length(replace(extra, 'c', '')) as c_counts
from {nexmark}.bid
where 0.908 * price > 1000000 and 0.908 * price < 50000000
