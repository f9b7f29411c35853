{% macro law_results() %}
  {#- One row per law, record type and batch with offenders, and one with zero where there are none.

  Every table is read once and says what it holds as observations; one aggregate brings together what
  is said of the same thing, and each law is a predicate over that. With `audit: touched` payloads of
  older passes are not hashed again; all else is exact everywhere.

  The aggregate keeps numbers and truths alone, of texts their hash: with texts, or a set of them, Spark
  would sort all that is said of all things instead of hashing it. -#}
{% set faults = ['reasons', 'disposition', 'payload', 'fidelity', 'fail_rules'] %}
{% set laws = [
  'capture', 'complement', 'reasons', 'disposition', 'payload', 'idempotence', 'evidence', 'isolation'
] %}
{% set names = var('record_types') | list + ['codice_codes'] %}
{% for record_type in var('parents') %}
  {% do names.extend(children_of(record_type) | map(attribute='table')) %}
{% endfor %}
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
  {{ observe_purges() }}
  union all
  {{ observe_dead_letters() }}
),

things as (
  select
    kind,
    id,
    max({{ text_hash('record_type') }}) as record_type_hash,
    max({{ text_hash('batch_id') }}) as batch_hash,
    {% for place in [
      'bronze', 'emptied', 'purged', 'judged', 'refused', 'accepted', 'quarantined', 'letter', 'cause', 'due', 'shown',
      'found', 'captured', 'live', 'known', 'failed'
    ] %}
    coalesce(sum(case when place = '{{ place }}' then n end), 0) as {{ place }},
    {% endfor %}
    {% for law in faults %}
    coalesce(bool_or(fault = '{{ law }}'), false) as has_fault_{{ law }},
    {% endfor %}
    min({{ text_hash('reasons') }}) as least_reasons,
    max({{ text_hash('reasons') }}) as most_reasons
  from observations
  group by kind, id
),

broken as (
  select
    record_type_hash,
    batch_hash,
    id as offender,
    explode(filter(array(
      {% for law in laws %}
      case when {{ context['law_' ~ law]() }}{{ ' or has_fault_' ~ law if law in faults }} then '{{ law }}' end,
      {% endfor %}
      {% for law in faults if law not in laws %}
      case when has_fault_{{ law }} then '{{ law }}' end{{ ',' if not loop.last }}
      {% endfor %}
    ), item -> item is not null)) as law
  from things
),

record_types as (
  select
    name as record_type,
    {{ text_hash('name') }} as record_type_hash
  from values {% for name in names %}('{{ name }}'){{ ', ' if not loop.last }}{% endfor %} as named (name)
),

batches as (
  select
    batch_id,
    {{ text_hash('batch_id') }} as batch_hash
  from {{ ref('stg_batches') }}
),

offences as (
  select
    broken.law,
    record_types.record_type,
    batches.batch_id,
    broken.offender
  from broken
  left join record_types on broken.record_type_hash = record_types.record_type_hash
  left join batches on broken.batch_hash = batches.batch_hash
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


{% macro text_hash(column) %}
  {#- A text as a number; null stays null. -#}
case when {{ column }} is not null then xxhash64({{ column }}) end
{%- endmacro %}
