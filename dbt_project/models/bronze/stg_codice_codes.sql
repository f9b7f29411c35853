select * from {{ source('bronze', 'codice_codes') }}
