{% macro law_capture(record_type) %}
  {#- Law 1: the records found in a file by other code are the Bronze rows of that file. -#}
  select
    'capture' as law,
    '{{ record_type }}' as record_type,
    coalesce(files.batch_id, bronze._batch_id) as batch_id,
    coalesce(files.source_file, bronze._source_file) as offender
  from (
    select
      batch_id,
      source_file,
      max(case when status = 'ingested' then records_found else 0 end) as records_found
    from {{ ref('stg_files') }}
    where record_type = '{{ record_type }}'
    group by batch_id, source_file
  ) as files
  full join (
    select
      _batch_id,
      _source_file,
      count(*) as records
    from {{ ref('stg_' ~ record_type) }}
    group by _batch_id, _source_file
  ) as bronze
    on files.batch_id = bronze._batch_id and files.source_file = bronze._source_file
  where coalesce(files.records_found, 0) <> coalesce(bronze.records, 0)
{% endmacro %}
