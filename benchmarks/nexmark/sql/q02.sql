select auction, price
from {nexmark}.bid
where auction % 123 = 0
