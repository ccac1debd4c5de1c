select b.auction, b.bidder, b.price, b.ts, s.value
from {nexmark}.bid b
join {nexmark}.side_input s on b.auction % 100 = s.key
