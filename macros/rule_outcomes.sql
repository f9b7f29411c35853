{% macro rule_outcomes() %}
  {#- One row per rule and batch in which records of its record type were judged.

  A rule behind one that stops is asked of the records that were not stopped: NOT_RUN when there
  were none. A record that a rule struck is warned, quarantined, dropped or failed by it, as its severity
  says; the others that it was asked of passed it. -#}
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
    {% set rules = (contracts().get(record_type) or {'rules': []}).rules %}
    map_from_arrays(
      cast(array({% for rule in rules %}'{{ rule.code }}'{{ ', ' if not loop.last }}{% endfor %}) as array<string>),
      cast(array(
        {% set stopping = [] %}
        {% for rule in rules %}
        {% if stopping %}
        count_if(not arrays_overlap(concat(failure_reasons, warnings), array('{{ stopping | join("', '") }}')))
        {%- else %}
        count(*)
        {%- endif %}{{ ',' if not loop.last }}
        {% if rule.stops %}{% do stopping.append(rule.code) %}{% endif %}
        {% endfor %}
      ) as array<bigint>)
    ) as asked,
    map_from_arrays(
      array({% for rule in rules %}'{{ rule.code }}'{{ ', ' if not loop.last }}{% endfor %}),
      array({% for rule in rules %}
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
    -- No rule of a child stops.
    cast(null as map<string, bigint>) as asked,
    child.struck
  from (select batch_id, judged_at, explode(tables) as child from {{ record_type }}_children) as exploded
),

{% endfor %}
batches as (
  {% for record_type in var('parents') %}
  select record_type, batch_id, verdict_contract, judged_at, records, asked, struck
  from {{ record_type }}_children_outcomes
  union all
  {% endfor %}
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select record_type, batch_id, verdict_contract, judged_at, records, asked, struck
  from {{ record_type }}
  {% endfor %}
),

counted as (
  select
    rules.record_type,
    rules.rule_code,
    rules.severity,
    batches.batch_id,
    batches.verdict_contract,
    coalesce(batches.asked[rules.rule_code], batches.records) as asked,
    coalesce(batches.struck[rules.rule_code], 0) as struck,
    batches.judged_at
  from rules
  inner join batches
    on
      rules.record_type = batches.record_type
      and rules.verdict_contract = batches.verdict_contract
),

outcomes as (
  select
    record_type,
    rule_code,
    severity,
    batch_id,
    verdict_contract,
    case
      when asked = 0 then 'NOT_RUN'
      when struck > 0 then 'FAIL'
      else 'PASS'
    end as outcome,
    asked,
    struck as records,
    asked - struck as passed,
    {% for severity, became in [
      ('warn', 'warned'), ('quarantine', 'quarantined'), ('drop', 'dropped'), ('fail', 'failed')
    ] %}
    if(severity = '{{ severity }}', struck, 0) as {{ became }},
    {% endfor %}
    judged_at
  from counted
)

select * from outcomes
{% endmacro %}
