select auction, bidder, price, channel, url, ts, extra, place
from (
  select *, row_number() over (partition by auction order by price desc, ts) as place
  from {nexmark}.bid
) as ranked
where place <= 10
