select auction, bidder, price, ts, extra
from {nexmark}.bid
