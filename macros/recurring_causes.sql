{% macro recurring_causes() %}
  {#- What is refused by its causes: from which source, how often, and whether it grows. Every cause of a
  record counts, and a record once for each. -#}
{% set clock = run_clock() %}
with

dead_letters as (
  select * from {{ ref('dead_letters') }}
),

batches as (
  select * from {{ ref('stg_batches') }}
),

struck as (
  select
    dead_letters.dataset,
    dead_letters.record_type,
    dead_letters.source_file,
    dead_letters.batch_id,
    explode(dead_letters.failure_reasons) as cause,
    -- What is no record counts as itself.
    coalesce(dead_letters.record_id, dead_letters.dead_letter_id) as record_id,
    -- When it came: a contract that changed writes letters of old records anew.
    coalesce(batches.started_at, dead_letters.processing_timestamp) as came_at
  from dead_letters
  left join batches on dead_letters.batch_id = batches.batch_id
  -- A record that is sent again and fails again is no further case of its cause.
  where dead_letters.attempt = 1 or dead_letters.record_id is null
),

cases as (
  select
    dataset,
    record_type,
    cause,
    record_id,
    min(source_file) as source_file,
    min(batch_id) as batch_id,
    min(came_at) as came_at
  from struck
  group by dataset, record_type, cause, record_id
),

totals as (
  select
    dataset,
    count(distinct record_id) as refused
  from cases
  group by dataset
),

counted as (
  select
    dataset,
    record_type,
    cause,
    count(*) as refused,
    count(distinct source_file) as affected_files,
    count(distinct batch_id) as affected_batches,
    min(came_at) as first_seen_at,
    max(came_at) as last_seen_at,
    count_if(came_at >= {{ clock }} - interval 7 days) as last_7_days,
    count_if(
      came_at >= {{ clock }} - interval 14 days and came_at < {{ clock }} - interval 7 days
    ) as previous_7_days
  from cases
  group by dataset, record_type, cause
),

causes as (
  select
    counted.dataset,
    counted.record_type,
    counted.cause,
    dim_rules.stage,
    dim_rules.reason,
    coalesce(
      dim_rules.owner,
      case counted.record_type
        {% for record_type, terms in contracts().items() %}
        when '{{ record_type }}' then {{ sql_string(terms.owner) }}
        {% endfor %}
        else 'unknown'
      end
    ) as owner,
    counted.refused,
    counted.refused / totals.refused as share,
    counted.affected_files,
    counted.affected_batches,
    counted.first_seen_at,
    counted.last_seen_at,
    counted.last_7_days,
    counted.previous_7_days,
    case
      when counted.last_7_days = counted.refused then 'new'
      when counted.last_7_days = 0 then 'gone'
      when counted.last_7_days > counted.previous_7_days then 'rising'
      when counted.last_7_days < counted.previous_7_days then 'falling'
      else 'steady'
    end as trend,
    {{ clock }} as measured_at
  from counted
  inner join totals on counted.dataset = totals.dataset
  left join {{ ref('dim_rules') }} as dim_rules
    on counted.record_type = dim_rules.record_type and counted.cause = dim_rules.rule_code
)

select * from causes
{% endmacro %}
