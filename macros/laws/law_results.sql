{% macro law_results() %}
  {#- One row per law, record type and batch with offenders, and one with zero where there are none. -#}
with

{% for record_type in var('record_types') %}
{{ record_type }}_verdicts as (
  {{ latest_verdicts(record_type) }}
),

{% endfor %}
offences as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  {{ law_capture(record_type) }}
  union all
  {{ law_complement(record_type) }}
  union all
  {{ law_reasons(record_type) }}
  union all
  {{ law_disposition(record_type) }}
  union all
  {{ law_payload(record_type) }}
  union all
  {{ law_idempotence(record_type) }}
  union all
  {{ law_evidence(record_type) }}
  union all
  {{ law_fidelity(record_type) }}
  union all
  {{ law_fail_rules(record_type) }}
  {% endfor %}
  union all
  {{ law_isolation() }}
),

counted as (
  select
    law,
    record_type,
    batch_id,
    count(*) as offenders,
    slice(array_sort(collect_set(offender)), 1, 5) as examples
  from offences
  group by law, record_type, batch_id
),

laws as (
  select
    law,
    record_type
  from values
    {% for record_type in var('record_types') %}
    {% for law in ['capture', 'complement', 'reasons', 'disposition', 'payload', 'idempotence',
      'evidence', 'fidelity', 'fail_rules'] %}
    ('{{ law }}', '{{ record_type }}'),
    {% endfor %}
    {% endfor %}
    ('isolation', 'files')
    as checked (law, record_type)
),

results as (
  select
    laws.law,
    laws.record_type,
    counted.batch_id,
    coalesce(counted.offenders, 0) as offenders,
    coalesce(counted.examples, array()) as examples,
    {{ run_clock() }} as checked_at
  from laws
  left join counted on laws.law = counted.law and laws.record_type = counted.record_type
)

select * from results
{% endmacro %}
