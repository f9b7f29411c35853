{% macro law_idempotence(record_type) %}
  {#- Law 6: no file content is captured twice, no record is judged twice in one pass, no dead letter
  is written twice. -#}
  select
    'idempotence' as law,
    '{{ record_type }}' as record_type,
    max(batch_id) as batch_id,
    max(source_file) as offender
  from {{ ref('stg_files') }}
  where record_type = '{{ record_type }}' and status = 'ingested'
  group by file_sha256
  having count(*) > 1

  union all

  select
    'idempotence' as law,
    '{{ record_type }}' as record_type,
    max(batch_id) as batch_id,
    dead_letter_id as offender
  from {{ ref('dead_letters') }}
  where record_type = '{{ record_type }}'
  group by dead_letter_id
  having count(*) > 1
{% endmacro %}
