select auction, price, ts from {{ ref('bids') }} where auction % 123 = 0
