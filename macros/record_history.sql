{% macro record_history() %}
  {#- The life of every record that was ever refused, or was sent again for one, as events.

  Costs by what was refused, not by what there is: of the verdicts only those of re-entered records are
  read, which the statistics of their files tell, and all only where more than one contract judged. -#}
with

dead_letters as (
  select * from {{ ref('dead_letters') }}
),

files as (
  select
    batch_id,
    source_file,
    record_type,
    max(ingested_at) as ingested_at
  from {{ ref('stg_files') }}
  where status = 'ingested'
  group by batch_id, source_file, record_type
),

operator_events as (
  select * from {{ ref('stg_quarantine_events') }}
),

refused as (
  select
    record_id,
    record_type,
    dataset,
    source_file,
    position,
    batch_id,
    attempt,
    failure_reasons,
    verdict_contract,
    _judged_at as judged_at,
    cast(null as string) as supersedes,
    dead_letter_id,
    processing_timestamp
  from dead_letters
  -- A refused child is no record, and has no history of its own.
  where _judged_at is not null and record_type in ('{{ var("record_types") | join("', '") }}')
),

{% for record_type in var('record_types') %}
{{ record_type }}_accepted as (
  -- What was sent again is found by the statistics of its files, so nothing else is read.
  select verdicts.*
  from {{ ref(record_type ~ '_judged') }} as verdicts
  where verdicts._supersedes is not null and size(verdicts.failure_reasons) = 0
  {% if latest_pass(record_type) > 1 %}
  union all
  -- Refused under one contract and accepted under another.
  select verdicts.*
  from {{ ref(record_type ~ '_judged') }} as verdicts
  left semi join refused on verdicts._record_id = refused.record_id
  where verdicts._supersedes is null and size(verdicts.failure_reasons) = 0
  {% endif %}
),

{% endfor %}
accepted as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select
    _record_id as record_id,
    '{{ record_type }}' as record_type,
    _dataset as dataset,
    _source_file as source_file,
    _position as position,
    _batch_id as batch_id,
    coalesce(_attempt, 1) as attempt,
    failure_reasons,
    _verdict_contract as verdict_contract,
    _judged_at as judged_at,
    _supersedes as supersedes
  from {{ record_type }}_accepted
  {% endfor %}
),

sent_again as (
  {% for record_type in var('record_types') %}
  {{ 'union' if not loop.first }}
  -- A verdict of each contract: the same record once.
  select distinct
    _record_id as record_id,
    _supersedes as supersedes,
    _batch_id as batch_id
  from {{ ref(record_type ~ '_judged') }}
  where _supersedes is not null
  {% endfor %}
),

verdicts as (
  select * except (dead_letter_id, processing_timestamp) from refused
  union all
  select * from accepted
),

captures as (
  -- A record has as many verdicts as contracts judged it, and was captured once.
  select distinct record_id, record_type, dataset, source_file, position, batch_id, attempt
  from verdicts
),

quarantined as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select
    _record_id as record_id,
    '{{ record_type }}' as record_type,
    _dataset as dataset,
    _batch_id as batch_id,
    coalesce(_attempt, 1) as attempt,
    failure_reasons,
    reason,
    is_dropped,
    _verdict_contract as verdict_contract,
    detected_at
  from {{ ref(record_type ~ '_quarantine') }}
  {% endfor %}
),

dispositions as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select
    decided._record_id as record_id,
    '{{ record_type }}' as record_type,
    decided._dataset as dataset,
    decided._batch_id as batch_id,
    decided.disposition,
    decided.by_record_id,
    decided._verdict_contract as verdict_contract,
    decided._decided_at as decided_at
  from {{ ref(record_type ~ '_dispositions') }} as decided
  left semi join {{ record_type }}_accepted as accepted on decided._record_id = accepted._record_id
  {% endfor %}
),

events as (
  select
    captures.record_id,
    captures.record_type,
    captures.dataset,
    'captured' as event_type,
    1 as step,
    files.ingested_at as happened_at,
    cast(null as string) as actor,
    concat(captures.source_file, ', position ', captures.position) as reason,
    cast(null as string) as evidence,
    cast(null as array<string>) as failure_reasons,
    captures.attempt,
    cast(null as string) as verdict_contract,
    captures.batch_id,
    sent_again.supersedes as other_record_id
  from captures
  left join files
    on
      captures.batch_id = files.batch_id
      and captures.source_file = files.source_file
      and captures.record_type = files.record_type
  left join sent_again on captures.record_id = sent_again.record_id
  union all
  select
    record_id,
    record_type,
    dataset,
    'judged' as event_type,
    2 as step,
    judged_at as happened_at,
    null as actor,
    if(size(failure_reasons) = 0, 'accepted', 'refused') as reason,
    null as evidence,
    failure_reasons,
    attempt,
    verdict_contract,
    batch_id,
    null as other_record_id
  from verdicts
  union all
  select
    record_id,
    record_type,
    dataset,
    'quarantined' as event_type,
    3 as step,
    detected_at as happened_at,
    null as actor,
    if(is_dropped, concat(reason, ', discarded at once'), reason) as reason,
    null as evidence,
    failure_reasons,
    attempt,
    verdict_contract,
    batch_id,
    null as other_record_id
  from quarantined
  union all
  select
    record_id,
    record_type,
    dataset,
    'dead_letter' as event_type,
    4 as step,
    processing_timestamp as happened_at,
    null as actor,
    element_at(failure_reasons, 1) as reason,
    dead_letter_id as evidence,
    failure_reasons,
    attempt,
    verdict_contract,
    batch_id,
    null as other_record_id
  from refused
  union all
  select
    operator_events.record_id,
    operator_events.record_type,
    operator_events.dataset,
    operator_events.event_type,
    5 as step,
    operator_events.at as happened_at,
    operator_events.actor,
    operator_events.reason,
    operator_events.evidence,
    null as failure_reasons,
    operator_events.attempt,
    null as verdict_contract,
    operator_events.batch_id,
    sent_again.record_id as other_record_id
  from operator_events
  left join sent_again
    on
      operator_events.record_id = sent_again.supersedes
      and operator_events.batch_id = sent_again.batch_id
  union all
  select
    record_id,
    record_type,
    dataset,
    'became' as event_type,
    6 as step,
    decided_at as happened_at,
    null as actor,
    disposition as reason,
    null as evidence,
    null as failure_reasons,
    null as attempt,
    verdict_contract,
    batch_id,
    by_record_id as other_record_id
  from dispositions
),

judgements as (
  select
    record_id,
    verdict_contract,
    max(judged_at) as judged_at
  from verdicts
  group by record_id, verdict_contract
),

-- What follows from a verdict stands where the verdict does: a table that is built anew writes it later.
numbered as (
  select
    events.* except (step),
    row_number() over (
      partition by events.record_id
      order by
        coalesce(judgements.judged_at, events.happened_at), events.step, events.verdict_contract,
        events.evidence
    ) as event_number
  from events
  left join judgements
    on events.record_id = judgements.record_id and events.verdict_contract = judgements.verdict_contract
)

select * from numbered
{% endmacro %}
