select category, avg(price) as average, count(*) as auctions
from {{ ref('winning_bids') }}
group by category
