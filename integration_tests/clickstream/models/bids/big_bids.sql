select
  auction,
  bidder,
  price,
  case
    when hour(ts) between 8 and 18 then 'day'
    when hour(ts) <= 6 or hour(ts) >= 20 then 'night'
    else 'other'
  end as part_of_day,
  split_part(url, '/', 4) as folder,
  ts
from {{ ref('bids') }}
where price > 10000000
