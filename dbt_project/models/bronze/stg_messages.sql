select * from {{ source('messages', 'messages') }}
