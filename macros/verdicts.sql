{% macro accepted(record_type, columns) %}
  {#- Accepted records of a record type: those whose newest verdict has no failure reason.

  Whole batches are judged again, so the newest verdict of a record is the one of the newest pass
  over its batch. -#}
  select {{ columns | join(', ') }}
  from ({{ latest_verdicts(record_type) }}) as verdicts
  where size(failure_reasons) = 0
{% endmacro %}


{% macro latest_verdicts(record_type) %}
  {#- The newest verdict of every record of a record type. -#}
  select judged.*
  from {{ ref(record_type ~ '_judged') }} as judged
  inner join (
    select
      _batch_id as pass_batch_id,
      max(_judged_at) as pass_judged_at
    from {{ ref(record_type ~ '_judged') }}
    group by _batch_id
  ) as passes
    on judged._batch_id = passes.pass_batch_id and judged._judged_at = passes.pass_judged_at
{% endmacro %}


{% macro quarantine(record_type) %}
  {#- Refused records of a record type with their payload, the reasons and the lineage. -#}
  {% set terms = contract(record_type) %}
  {% set done = done_until('_judged_at') %}
with

verdicts as (
  {{ latest_verdicts(record_type) }}
),

refused as (
  select *
  from verdicts
  where
    size(failure_reasons) > 0
    {% if done %}
    and _judged_at > {{ done }}
    {% endif %}
),

bronze as (
  select
    _record_id,
    payload
  from {{ ref('stg_' ~ record_type) }}
  where _batch_id in (select distinct _batch_id from refused)
),

quarantined as (
  select
    refused._record_id,
    refused._dataset,
    refused._source_file,
    refused._file_sha256,
    refused._position,
    refused._batch_id,
    refused._ingested_at,
    refused._read_contract,
    refused._pipeline_version,
    {% for field in terms.fields %}
    refused.{{ field.name }},
    {% endfor %}
    refused._parse_error,
    {{ reason_of(record_type, 'refused.failure_reasons') }} as reason,
    refused.failure_reasons,
    refused.warnings,
    refused._misfits,
    {{ is_dropped(record_type, 'refused.failure_reasons') }} as is_dropped,
    refused._judged_at as detected_at,
    refused._verdict_contract,
    refused._judged_at,
    bronze.payload
  from refused
  inner join bronze on refused._record_id = bronze._record_id
)

select * from quarantined
{% endmacro %}


{% macro reason_of(record_type, reasons) %}
  {#- The `reason` group of the first failed rule, in contract order. -#}
  case element_at({{ reasons }}, 1)
    {% for rule in contract(record_type).rules if rule.severity != 'warn' %}
    when '{{ rule.code }}' then '{{ rule.reason }}'
    {% endfor %}
    else 'unknown'
  end
{% endmacro %}


{% macro is_dropped(record_type, reasons) %}
  {#- Whether a rule of severity drop discarded the record at once. -#}
  {% set codes = contract(record_type).rules | selectattr('severity', 'equalto', 'drop') | map(attribute='code') | list -%}
  {%- if codes -%} arrays_overlap({{ reasons }}, array('{{ codes | join("', '") }}'))
  {%- else -%} false
  {%- endif -%}
{% endmacro %}
