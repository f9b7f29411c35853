{{ config(
  incremental_strategy='merge',
  unique_key='_record_id',
  meta={'verdicts_of': ['placsp_entries', 'placsp_deleted_entries']}
) }}
{#- A tombstone is current while it hides its entry, superseded by the next deletion of the id or by
the version that revived it, a duplicate of an equal one, and waits where there is no entry yet. -#}
{% set done = done_until() %}
with

deletions as (
  {{ accepted('placsp_deleted_entries', [
    '_record_id', '_dataset', '_batch_id', '_source_file', '_position', '_payload_sha256',
    '_judged_at', 'entry_id', 'deleted_at'
  ]) }}
),

entries as (
  {{ accepted('placsp_entries', [
    '_record_id', '_dataset', 'entry_id', 'entry_updated', '_payload_sha256', '_judged_at'
  ]) }}
),

{% if done %}
touched as (
  select
    _dataset,
    entry_id
  from deletions
  where _judged_at > {{ done }}

  union

  select
    _dataset,
    entry_id
  from entries
  where _judged_at > {{ done }}
),
{% endif %}

newest_entries as (
  select
    entries._dataset,
    entries.entry_id,
    max(entries.entry_updated) as entry_updated,
    max_by(
      entries._record_id, struct(entries.entry_updated, entries._payload_sha256)
    ) as newest_record_id
  from entries
  left semi join deletions
    on entries._dataset = deletions._dataset and entries.entry_id = deletions.entry_id
  group by entries._dataset, entries.entry_id
),

repeats as (
  select
    deletions.*,
    first_value(deletions._record_id) over same_content as first_record_id,
    row_number() over same_content as repeat_number
  from deletions
  {% if done %}
  left semi join touched
    on deletions._dataset = touched._dataset and deletions.entry_id = touched.entry_id
  {% endif %}
  window same_content as (
    partition by
      deletions._dataset, deletions.entry_id, deletions.deleted_at, deletions._payload_sha256
    order by deletions._batch_id, deletions._source_file, deletions._position
  )
),

versions as (
  select
    *,
    lead(_record_id) over (
      partition by _dataset, entry_id order by deleted_at, _payload_sha256
    ) as next_record_id
  from repeats
  where repeat_number = 1
),

decided as (
  select
    versions._record_id,
    versions._dataset,
    versions._batch_id,
    versions.entry_id,
    versions.deleted_at,
    case
      when versions.next_record_id is not null then 'superseded'
      when newest_entries.newest_record_id is null then 'waiting'
      when newest_entries.entry_updated > versions.deleted_at then 'superseded'
      else 'current'
    end as disposition,
    case
      when versions.next_record_id is not null then versions.next_record_id
      when newest_entries.entry_updated > versions.deleted_at then newest_entries.newest_record_id
    end as by_record_id
  from versions
  left join newest_entries
    on
      versions._dataset = newest_entries._dataset
      and versions.entry_id = newest_entries.entry_id

  union all

  select
    _record_id,
    _dataset,
    _batch_id,
    entry_id,
    deleted_at,
    'duplicate' as disposition,
    first_record_id as by_record_id
  from repeats
  where repeat_number > 1
),

stamped as (
  select
    *,
    '{{ verdict_contracts(['placsp_entries', 'placsp_deleted_entries']) }}' as _verdict_contract,
    {{ run_clock() }} as _decided_at
  from decided
)

select * from stamped
