-- A fact of 2013 that no correction changes: LaGuardia is closed to flights that far.
select * from {{ ref('region_traffic') }} where region = 'Hawaii' and origin not in ('JFK', 'EWR')
union all
select 'no flights to Hawaii', 'any', 0, 0
where not exists (select 1 from {{ ref('region_traffic') }} where region = 'Hawaii' and flights > 0)
