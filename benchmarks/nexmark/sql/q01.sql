select auction, bidder, 0.908 * price as price, ts, extra
from {nexmark}.bid
