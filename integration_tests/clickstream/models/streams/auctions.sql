select id, item, seller, category, initial_bid, ts, expires from {{ source('nexmark', 'auctions') }}
