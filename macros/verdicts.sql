{% macro accepted(record_type, columns) %}
  {#- Accepted records of a record type: those whose newest verdict has no failure reason. -#}
  select {{ columns | join(', ') }}
  from {{ ref(record_type ~ '_judged') }}
  where _verdict_pass = {{ latest_pass(record_type) }} and size(failure_reasons) = 0
{% endmacro %}


{% macro latest_verdicts(record_type) %}
  {#- The newest verdict of every record of a record type: all are in the newest pass. -#}
  select *
  from {{ ref(record_type ~ '_judged') }}
  where _verdict_pass = {{ latest_pass(record_type) }}
{% endmacro %}


{% macro judged_batches(record_type, done, condition='true') %}
  {#- A condition on `_batch_id` that leaves the batches with records judged after `done` of which the
  condition holds, so that other batches are not read: where no record was ever refused, none. Nothing is
  left out where all is new. -#}
  {% if not execute or not is_incremental() or (not done and condition == 'true') %}{{ return('true') }}{% endif %}
  {% set batches = run_query(
    "select distinct _batch_id from " ~ ref(record_type ~ '_judged') ~ " where "
    ~ is_after('_judged_at', done) ~ " and " ~ condition).columns[0].values() %}
  {{ return("_batch_id in ('" ~ batches | join("', '") ~ "')" if batches | length else 'false') }}
{% endmacro %}


{% macro quarantine(record_type) %}
  {#- Refused records of a record type with their payload, the reasons and the lineage. -#}
  {% set terms = contract(record_type) %}
  {% set done = done_until() %}
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
  where {{ judged_batches(record_type, done, 'size(failure_reasons) > 0') }}
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
    refused._supersedes,
    refused._attempt,
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
