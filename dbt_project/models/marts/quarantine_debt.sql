{% set clock = run_clock() %}
with

events as (
  select
    record_id,
    max_by(event_type, struct(at, event_id)) as last_event,
    max(at) as last_at,
    count_if(event_type = 'corrected') > 0 as was_corrected
  from {{ ref('stg_quarantine_events') }}
  group by record_id
),

{% for record_type in var('record_types') %}
{{ record_type }} as (
  select
    '{{ record_type }}' as record_type,
    _dataset as dataset,
    _record_id as record_id,
    element_at(failure_reasons, 1) as rule_code,
    _ingested_at,
    {{ untouched_state(record_type) }} as untouched_state,
    '{{ record_type }}' as rules_of,
    cast(null as string) as owner
  from {{ ref(record_type ~ '_quarantine') }}
),

{% endfor %}
messages as (
  {{ message_refusals() }}
),

refused as (
  {% for record_type in var('record_types') %}
  select * from {{ record_type }}
  union all
  {% endfor %}
  select * from messages
),

states as (
  select
    refused.*,
    coalesce(events.was_corrected, false) as was_corrected,
    events.last_at,
    {{ state_after('events.last_event', 'refused.untouched_state') }} as current_state
  from refused
  left join events on refused.record_id = events.record_id
),

aged as (
  select
    *,
    current_state in ('pending', 'investigated', 'corrected', 'exhausted') as is_open,
    (unix_micros({{ clock }}) - unix_micros(_ingested_at)) / 86400e6 as age_days,
    case
      when current_state in ('discarded', 'reentered')
        then (unix_micros(last_at) - unix_micros(_ingested_at)) / 3600e6
    end as hours_to_resolution
  from states
),

debt as (
  select
    aged.dataset,
    aged.record_type,
    aged.rule_code,
    dim_rules.reason,
    coalesce(dim_rules.owner, aged.owner) as owner,
    count(*) as refused,
    count_if(aged.is_open) as open_records,
    min(case when aged.is_open then aged._ingested_at end) as oldest_open_at,
    percentile(case when aged.is_open then aged.age_days end, 0.5) as median_age_days,
    count_if(aged.age_days < 7) / 7 as incoming_per_day,
    count_if(aged.was_corrected) as corrected,
    count_if(aged.current_state = 'discarded') as discarded,
    count_if(aged.current_state = 'reentered') as reentered,
    count_if(aged.current_state = 'exhausted') as exhausted,
    count_if(aged.was_corrected) / count(*) as corrected_share,
    percentile(aged.hours_to_resolution, 0.5) as median_hours_to_resolution,
    {{ clock }} as measured_at
  from aged
  left join {{ ref('dim_rules') }} as dim_rules
    on aged.rules_of = dim_rules.record_type and aged.rule_code = dim_rules.rule_code
  group by
    aged.dataset, aged.record_type, aged.rule_code, dim_rules.reason,
    coalesce(dim_rules.owner, aged.owner)
)

select * from debt
