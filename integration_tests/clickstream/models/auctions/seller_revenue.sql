select seller, sum(price) as revenue, count(*) as auctions
from {{ ref('winning_bids') }}
group by seller
