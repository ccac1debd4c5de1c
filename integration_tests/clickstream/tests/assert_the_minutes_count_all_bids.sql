select counted.bids
from (select sum(bids) as bids from {{ ref('channel_minutes') }}) counted
where counted.bids <> (select count(*) from {{ ref('bids') }})
