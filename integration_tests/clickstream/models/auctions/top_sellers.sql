select s.seller, p.name, s.revenue
from {{ ref('seller_revenue') }} s
join {{ ref('persons') }} p on s.seller = p.id
order by s.revenue desc, s.seller
limit 10
