select * from {{ source('bronze', 'run_failures') }}
