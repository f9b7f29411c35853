select *
from {{ source('bronze', 'files') }}
where batch_id in (
  select batch_id from {{ ref('stg_batches') }}
)
