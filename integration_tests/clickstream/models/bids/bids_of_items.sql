select auction, window.start as starts, count(*) as bids
from {{ ref('bids') }}
group by auction, window(ts, '10 seconds')
