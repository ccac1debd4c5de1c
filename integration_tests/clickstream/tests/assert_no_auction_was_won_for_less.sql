select w.id
from {{ ref('winning_bids') }} w
join {{ ref('auctions') }} a on w.id = a.id
join {{ ref('bids') }} b on b.auction = a.id
where b.ts between a.ts and a.expires and b.price > w.price
