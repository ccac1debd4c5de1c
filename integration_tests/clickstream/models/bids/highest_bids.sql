select window.start as starts, max(price) as price, count(*) as bids
from {{ ref('bids') }}
group by window(ts, '10 seconds')
