select * from {{ source('bronze', 'batch_releases') }}
