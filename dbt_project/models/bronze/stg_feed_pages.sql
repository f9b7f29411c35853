select *
from {{ source('bronze', 'feed_pages') }}
where batch_id in (
  select finished.batch_id from {{ ref('stg_batches') }} as finished
)
