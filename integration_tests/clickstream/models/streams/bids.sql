select auction, bidder, price, channel, url, ts from {{ source('nexmark', 'bids') }}
