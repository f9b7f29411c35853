select *
from {{ source('bronze', 'batches') }}
where status = 'finished'
