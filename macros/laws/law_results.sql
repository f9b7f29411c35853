{% macro law_results() %}
  {#- One row per law, record type and batch with offenders, and one with zero where there are none.

  Every table is read once and says what it holds as observations; one aggregate brings together what
  is said of the same thing, and each law is a predicate over that. With `audit: touched` payloads of
  older passes are not hashed again; all else is exact everywhere. -#}
with

observations as (
  {% for record_type in var('record_types') %}
  {{ observe_bronze(record_type) }}
  union all
  {{ observe_verdicts(record_type) }}
  union all
  {{ observe_dispositions(record_type) }}
  union all
  {{ observe_quarantine(record_type) }}
  {% for table in var('record_types')[record_type] %}
  union all
  {{ observe_silver(record_type, table) }}
  {% endfor %}
  union all
  {% endfor %}
  {% for record_type in var('parents') %}
  {{ observe_children(record_type) }}
  union all
  {% endfor %}
  {{ observe_files() }}
  union all
  {{ observe_dead_letters() }}
),

things as (
  select
    kind,
    id,
    max(record_type) as record_type,
    max(batch_id) as batch_id,
    {% for place in [
      'bronze', 'judged', 'refused', 'accepted', 'quarantined', 'letter', 'cause', 'due', 'shown',
      'found', 'captured', 'live', 'known', 'failed'
    ] %}
    coalesce(sum(case when place = '{{ place }}' then n end), 0) as {{ place }},
    {% endfor %}
    min(reasons) as least_reasons,
    max(reasons) as most_reasons,
    filter(collect_set(fault), item -> item is not null) as faults
  from observations
  group by kind, id
),

offences as (
  select
    record_type,
    batch_id,
    id as offender,
    explode(array_distinct(concat(faults, filter(array(
      {% for law in ['capture', 'complement', 'reasons', 'disposition', 'idempotence', 'evidence', 'isolation'] %}
      case when {{ context['law_' ~ law]() }} then '{{ law }}' end{{ ',' if not loop.last }}
      {% endfor %}
    ), item -> item is not null)))) as law
  from things
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
      'evidence', 'isolation', 'fidelity', 'fail_rules'] %}
    ('{{ law }}', '{{ record_type }}'){{ ',' if not (loop.last and loop.index0 == 9 and record_type == (var('record_types') | list)[-1]) }}
    {% endfor %}
    {% endfor %}
    as checked (law, record_type)
),

results as (
  select
    coalesce(laws.law, counted.law) as law,
    coalesce(laws.record_type, counted.record_type) as record_type,
    counted.batch_id,
    coalesce(counted.offenders, 0) as offenders,
    coalesce(counted.examples, array()) as examples,
    {{ run_clock() }} as checked_at
  from laws
  full join counted on laws.law = counted.law and laws.record_type = counted.record_type
)

select * from results
{% endmacro %}
