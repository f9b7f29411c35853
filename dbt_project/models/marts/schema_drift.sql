with

{% for record_type in var('record_types') %}
{{ record_type }} as (
  select
    '{{ record_type }}' as record_type,
    _dataset as dataset,
    _ingested_at,
    explode(_unparsed) as path
  from ({{ latest_verdicts(record_type) }}) as verdicts
  where size(_unparsed) > 0
),
{% endfor %}

unparsed as (
  {% for record_type in var('record_types') %}
  {{ 'union all' if not loop.first }}
  select * from {{ record_type }}
  {% endfor %}
),

drift as (
  select
    record_type,
    dataset,
    path,
    count(*) as records,
    min(_ingested_at) as first_seen_at,
    max(_ingested_at) as last_seen_at
  from unparsed
  group by record_type, dataset, path
)

select * from drift
