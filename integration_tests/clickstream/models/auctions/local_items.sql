select a.id, p.name, p.city, p.state
from {{ ref('auctions') }} a
join {{ ref('persons') }} p on a.seller = p.id
where a.category = 10 and p.state in ('OR', 'ID', 'CA')
