select * from {{ source('messages', 'bad_data') }}
