select p.name, p.city, p.state, a.id
from {nexmark}.auction a
join {nexmark}.person p on a.seller = p.id
where a.category = 10 and p.state in ('OR', 'ID', 'CA')
