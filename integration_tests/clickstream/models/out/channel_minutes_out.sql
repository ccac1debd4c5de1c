{{ config(
    target={'connector': 'postgres', 'options': {'table': 'channel_minutes'}},
    key=['channel', 'minute'],
) }}
select channel, minute, bids, small_bids, great_bids, total, last_bid
from {{ ref('channel_minutes') }}
