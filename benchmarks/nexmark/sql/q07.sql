with highest as (
  select max(price) as maxprice, w.start as starttime, w.end as endtime
  from (select price, window(ts, '10 seconds') as w from {nexmark}.bid) as windowed
  group by w
)
select b.auction, b.price, b.bidder, b.ts, b.extra
from {nexmark}.bid b
join highest h on b.price = h.maxprice
where b.ts >= h.starttime and b.ts < h.endtime
