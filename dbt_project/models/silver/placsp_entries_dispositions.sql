{{ config(
  incremental_strategy='merge',
  unique_key='_record_id',
  meta={'verdicts_of': ['placsp_entries', 'placsp_deleted_entries']}
) }}
-- depends_on: {{ ref('placsp_deleted_entries_judged') }}
{{ dispositions('placsp_entries') }}
