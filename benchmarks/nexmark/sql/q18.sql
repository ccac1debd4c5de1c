select auction, bidder, price, channel, url, ts, extra
from (
  select *, row_number() over (partition by bidder, auction order by ts desc) as place
  from {nexmark}.bid
) as ranked
where place <= 1
