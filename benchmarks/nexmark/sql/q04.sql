select category, avg(final) as average
from (
  select a.id, a.category, max(b.price) as final
  from {nexmark}.auction a
  join {nexmark}.bid b on a.id = b.auction
  where b.ts between a.ts and a.expires
  group by a.id, a.category
) as closed
group by category
