-- depends_on: {{ ref('codice_codes') }}
{{ config(
  incremental_strategy='merge',
  unique_key=['dataset', 'entry_id'],
  meta={'verdicts_of': ['placsp_entries', 'placsp_deleted_entries', 'catalogue']}
) }}
{% set done = done_until() %}
with

versions as (
  select *
  from {{ ref('placsp_entry_versions') }}
  where
    not is_superseded
    and {{ is_after('_decided_at', done) }}
),

decisions as (
  select
    _record_id,
    disposition,
    by_record_id
  from {{ ref('placsp_entries_dispositions') }}
  where disposition in ('current', 'withdrawn')
),

deletions as (
  {{ accepted('placsp_deleted_entries', [
    '_record_id', 'deleted_at', 'deleted_at_offset', 'deletion_type'
  ]) }}
),

entries as (
  select
    versions.* except (is_superseded),
    deletions.deleted_at,
    deletions.deleted_at_offset,
    deletions.deletion_type,
    decisions.disposition = 'withdrawn' as is_deleted
  from versions
  inner join decisions on versions.record_id = decisions._record_id
  left join deletions
    on decisions.by_record_id = deletions._record_id and decisions.disposition = 'withdrawn'
)

select * from entries
