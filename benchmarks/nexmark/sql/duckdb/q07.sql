select auction, price, bidder, ts, extra
from {nexmark}.bid
qualify price = max(price) over (partition by time_bucket(interval 10 seconds, ts))
