select *
from {{ source('bronze', 'placsp_deleted_entries') }}
where _batch_id in (
  select finished.batch_id from {{ ref('stg_batches') }} as finished
)
