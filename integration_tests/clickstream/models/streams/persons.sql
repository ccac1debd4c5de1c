select id, name, city, state, ts from {{ source('nexmark', 'persons') }}
