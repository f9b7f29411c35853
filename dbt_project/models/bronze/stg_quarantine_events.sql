select * from {{ source('bronze', 'quarantine_events') }}
