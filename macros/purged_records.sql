{#- Records whose text was removed: `lakehouse purge` and `lakehouse forget` write an event of each. -#}

{% macro purged_records() %}
  {#- Ids of records that were purged. -#}
  select record_id
  from {{ ref('stg_quarantine_events') }}
  where event_type = 'purged'
{% endmacro %}


{% macro unpurged(record_type) %}
  {#- The Bronze records of a record type that still say something: the others have no verdict any more,
  and are not judged again under a changed contract. -#}
  (
    select captured.*
    from {{ ref('stg_' ~ record_type) }} as captured
    left anti join ({{ purged_records() }}) as purged
      on captured._record_id = purged.record_id
  )
{%- endmacro %}
