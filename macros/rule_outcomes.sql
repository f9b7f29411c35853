{% macro rule_outcomes() %}
  {#- One row per rule and batch in which records of its record type were judged.

  A rule behind one that stops is asked of the records that were not stopped: NOT_RUN when there
  were none. -#}
with

rules as (
  select * from {{ ref('dim_rules') }}
),

{% for record_type in var('record_types') %}
{{ record_type }} as (
  select
    '{{ record_type }}' as record_type,
    _batch_id as batch_id,
    _verdict_contract as verdict_contract,
    max(_judged_at) as judged_at,
    count(*) as records,
    {% set stopping = [] %}
    {% for rule in (contracts().get(record_type) or {'rules': []}).rules if rule.stops %}
      {% do stopping.append(rule.code) %}
    {% endfor %}
    {% if stopping %}
    count_if(not arrays_overlap(failure_reasons, array('{{ stopping | join("', '") }}'))) as unstopped,
    {% else %}
    count(*) as unstopped,
    {% endif %}
    map_from_arrays(
      array({% for rule in (contracts().get(record_type) or {'rules': []}).rules %}'{{ rule.code }}'{{ ', ' if not loop.last }}{% endfor %}),
      array({% for rule in (contracts().get(record_type) or {'rules': []}).rules %}
        count_if(array_contains({{ 'warnings' if rule.severity == 'warn' else 'failure_reasons' }}, '{{ rule.code }}')){{ ', ' if not loop.last }}{% endfor %})
    ) as struck
  from ({{ latest_verdicts(record_type) }}) as verdicts
  group by _batch_id, _verdict_contract
),

{% endfor %}
{% for record_type in var('parents') %}
{{ record_type }}_children as (
  select
    _batch_id as batch_id,
    max(_judged_at) as judged_at,
    array(
      {% for table in children_of(record_type) %}
      named_struct(
        'record_type', '{{ table.table }}',
        -- Of the arrays only this is read.
        'records', coalesce(sum(size({{ table.table }}.failure_reasons)), 0),
        'struck', map_from_arrays(
          cast(array({% for rule in table.rules %}'{{ rule.code }}'{{ ', ' if not loop.last }}{% endfor %}) as array<string>),
          cast(array({% for rule in table.rules %}
            coalesce(sum(size(filter(
              flatten({{ table.table }}.{{ 'warnings' if rule.severity == 'warn' else 'failure_reasons' }}),
              code -> code = '{{ rule.code }}'
            ))), 0){{ ', ' if not loop.last }}{% endfor %}) as array<bigint>)
        )
      ){{ ',' if not loop.last }}
      {% endfor %}
    ) as tables
  from {{ ref(record_type ~ '_children') }}
  group by _batch_id
),

{{ record_type }}_children_outcomes as (
  select
    child.record_type,
    '{{ verdict_contract('children_of_' ~ record_type) }}' as verdict_contract,
    batch_id,
    judged_at,
    child.records,
    child.records as unstopped,
    child.struck
  from (select batch_id, judged_at, explode(tables) as child from {{ record_type }}_children) as exploded
),

{% endfor %}
batches as (
  {% for record_type in var('parents') %}
  select record_type, batch_id, verdict_contract, judged_at, records, unstopped, struck
  from {{ record_type }}_children_outcomes
  union all
  {% endfor %}
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select record_type, batch_id, verdict_contract, judged_at, records, unstopped, struck
  from {{ record_type }}
  {% endfor %}
),

outcomes as (
  select
    rules.record_type,
    rules.rule_code,
    rules.severity,
    batches.batch_id,
    batches.verdict_contract,
    case
      when not rules.is_stopping and batches.unstopped = 0 then 'NOT_RUN'
      when batches.struck[rules.rule_code] > 0 then 'FAIL'
      else 'PASS'
    end as outcome,
    case when rules.is_stopping then batches.records else batches.unstopped end as asked,
    coalesce(batches.struck[rules.rule_code], 0) as records,
    batches.judged_at
  from rules
  inner join batches
    on
      rules.record_type = batches.record_type
      and rules.verdict_contract = batches.verdict_contract
)

select * from outcomes
{% endmacro %}
