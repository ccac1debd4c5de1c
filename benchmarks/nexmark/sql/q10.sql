select
  auction, bidder, price, ts, extra,
  date_format(ts, 'yyyy-MM-dd') as dt,
  date_format(ts, 'HH:mm') as hm
from {nexmark}.bid
