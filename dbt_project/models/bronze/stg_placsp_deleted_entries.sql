select *
from {{ source('bronze', 'placsp_deleted_entries') }}
where _batch_id in (
  select batch_id from {{ ref('stg_batches') }}
)
