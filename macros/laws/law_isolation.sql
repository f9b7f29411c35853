{% macro law_isolation() %}
  {#- Law 8: a failed file and a failed statement each have their dead letter, so that what they cost
  is known. -#}
  select
    'isolation' as law,
    'files' as record_type,
    files.batch_id,
    files.source_file as offender
  from {{ ref('stg_files') }} as files
  left anti join {{ ref('dead_letters') }} as letters
    on files.source_file = letters.source_file and letters.stage = 'file_read'
  where files.status = 'failed'
{% endmacro %}
