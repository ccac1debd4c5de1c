select a.id, a.seller, a.category, max(b.price) as price, count(*) as bids
from {{ ref('auctions') }} a
join {{ ref('bids') }} b on a.id = b.auction
where b.ts between a.ts and a.expires
group by a.id, a.seller, a.category
