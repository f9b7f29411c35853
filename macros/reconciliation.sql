{% macro reconciliation() %}
  {#- Per file and record type: what was found, and what became of each record.

  `balance` is zero when nothing was lost or doubled: records found, less those quarantined, less
  those purged, less each disposition. -#}
with

files as (
  select
    source_file,
    file_sha256,
    record_type,
    dataset,
    batch_id,
    status,
    records_found,
    corrupt_records
  from {{ ref('stg_files') }}
  where record_type is not null
),

{% for record_type in var('record_types') %}
{{ record_type }} as (
  select
    '{{ record_type }}' as record_type,
    verdicts._source_file as source_file,
    verdicts._batch_id as batch_id,
    count(*) as bronze,
    count_if(size(verdicts.failure_reasons) = 0) as accepted,
    count_if(size(verdicts.failure_reasons) > 0) as quarantined,
    count_if(size(verdicts.warnings) > 0) as warned,
    {% for state in ['current', 'superseded', 'duplicate', 'withdrawn', 'waiting', 'held'] %}
    count_if(dispositions.disposition = '{{ state }}') as {{ state }}_records{{ ',' if not loop.last }}
    {% endfor %}
  from ({{ latest_verdicts(record_type) }}) as verdicts
  left join {{ ref(record_type ~ '_dispositions') }} as dispositions
    on verdicts._record_id = dispositions._record_id
  group by verdicts._source_file, verdicts._batch_id
),

{% endfor %}
purged as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select
    '{{ record_type }}' as record_type,
    captured._source_file as source_file,
    captured._batch_id as batch_id,
    count(*) as purged
  from {{ ref('stg_' ~ record_type) }} as captured
  left semi join ({{ purged_records() }}) as events on captured._record_id = events.record_id
  group by captured._source_file, captured._batch_id
  {% endfor %}
),

counted as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select * from {{ record_type }}
  {% endfor %}
),

balanced as (
  select
    files.source_file,
    files.file_sha256,
    files.record_type,
    files.dataset,
    files.batch_id,
    files.status,
    coalesce(files.records_found, 0) as found,
    coalesce(counted.bronze, 0) as bronze,
    coalesce(files.corrupt_records, 0) as corrupt,
    coalesce(counted.accepted, 0) as accepted,
    coalesce(counted.quarantined, 0) as quarantined,
    coalesce(counted.warned, 0) as warned,
    {% for state in ['current', 'superseded', 'duplicate', 'withdrawn', 'waiting', 'held'] %}
    coalesce(counted.{{ state }}_records, 0) as {{ state }},
    {% endfor %}
    coalesce(purged.purged, 0) as purged,
    case
      when files.status = 'ingested'
        then
          coalesce(files.records_found, 0)
          - coalesce(counted.quarantined, 0)
          - coalesce(purged.purged, 0)
          {% for state in ['current', 'superseded', 'duplicate', 'withdrawn', 'waiting', 'held'] %}
          - coalesce(counted.{{ state }}_records, 0)
          {% endfor %}
      else coalesce(counted.bronze, 0)
    end as balance
  from files
  left join counted
    on
      files.source_file = counted.source_file
      and files.batch_id = counted.batch_id
      and files.record_type = counted.record_type
  left join purged
    on
      files.source_file = purged.source_file
      and files.batch_id = purged.batch_id
      and files.record_type = purged.record_type
)

select * from balanced
{% endmacro %}
