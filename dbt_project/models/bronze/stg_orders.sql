select *
from {{ source('bronze', 'orders') }}
where _batch_id in (
  select finished.batch_id from {{ ref('stg_batches') }} as finished
)
