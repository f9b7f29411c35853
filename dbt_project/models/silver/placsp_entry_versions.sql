{{ config(
  incremental_strategy='merge',
  unique_key='record_id',
  meta={'verdicts_of': ['placsp_entries', 'placsp_deleted_entries', 'catalogue']}
) }}
{% set done = done_until() %}
with

decisions as (
  select *
  from {{ ref('placsp_entries_dispositions') }}
  where
    disposition in ('current', 'superseded', 'withdrawn')
    and {{ is_after('_decided_at', done) }}
),

verdicts as (
  {{ latest_verdicts('placsp_entries') }}
),

{{ catalogue_names() }},

versions as (
  select
    decisions._record_id as record_id,
    verdicts._dataset as dataset,
    {% for field in contract('placsp_entries').fields %}
    verdicts.{{ field.name }},
    {% endfor %}
    {{ named_codes(contract('placsp_entries').fields, 'verdicts.') }}
    decisions.disposition = 'superseded' as is_superseded,
    verdicts.warnings,
    verdicts._source_file,
    verdicts._position,
    verdicts._batch_id,
    '{{ own_contracts() }}' as _verdict_contract,
    decisions._decided_at
  from decisions
  inner join verdicts on decisions._record_id = verdicts._record_id
  cross join catalogue
)

select * from versions
