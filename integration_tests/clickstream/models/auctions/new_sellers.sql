select p.id, p.name, p.starts
from (
  select id, name, window.start as starts
  from {{ ref('persons') }}
  group by id, name, window(ts, '10 seconds')
) p
join (
  select seller, window.start as starts
  from {{ ref('auctions') }}
  group by seller, window(ts, '10 seconds')
) a on p.id = a.seller and p.starts = a.starts
