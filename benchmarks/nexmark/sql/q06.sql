select
  seller,
  avg(price) over (
    partition by seller order by ts rows between 9 preceding and current row
  ) as avg_price
from (
  select
    a.seller,
    b.price,
    b.ts,
    row_number() over (partition by a.id order by b.price desc, b.ts) as place
  from {nexmark}.auction a
  join {nexmark}.bid b on a.id = b.auction
  where b.ts between a.ts and a.expires
) as bids
where place = 1
