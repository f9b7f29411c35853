{% macro dispositions(record_type) %}
  {#- What became of every accepted record of a record type, from its contract's key and version.

  Of one key the newest version is current and each older one is superseded by the next newer;
  versions of one instant are ordered by content, so that the order of arrival does not matter. An
  exact repeat is a duplicate of the one ingested first. A current version whose key was deleted at
  its instant or later is withdrawn by that deletion.

  Where the contract has a `stop_above`, what is accepted of a batch that is stopped is held: it takes no
  part in this until the batch is released.

  Only keys that new verdicts touch are worked out again. -#}
  {% set terms = contract(record_type) %}
  {% set key = terms.key %}
  {% set done = done_until() %}
  {% set withdrawal = terms.withdrawn_by %}
  {% set stops = terms.stop_above is defined %}
  {#- dbt learns what a model hangs on when no contract can be read yet. -#}
  {% if not execute %}{% do stopped_batches(record_type) %}{% endif %}
with

{% if stops %}
stopped as (
  {{ stopped_batches(record_type) }}
),

{% endif %}
{{ 'every_accepted' if stops else 'accepted' }} as (
  {{ accepted(record_type, ['_record_id', '_dataset', '_batch_id', '_source_file', '_position',
    '_payload_sha256', '_judged_at', terms.order_by or '_ingested_at']
    + (key | reject('equalto', '_dataset') | list)) }}
),

{% if stops %}
accepted as (
  select every_accepted.*
  from every_accepted
  left anti join stopped
    on every_accepted._dataset = stopped._dataset and every_accepted._batch_id = stopped._batch_id
),

{% endif %}
{% if withdrawal %}
deletions as (
  {{ accepted(withdrawal.record_type, ['_record_id', '_payload_sha256', '_judged_at', withdrawal.at]
    + withdrawal.key) }}
),

newest_deletions as (
  select
    {{ withdrawal.key | join(', ') }},
    max({{ withdrawal.at }}) as deleted_at,
    max_by(_record_id, struct({{ withdrawal.at }}, _payload_sha256, _record_id)) as deletion_id
  from deletions
  group by {{ withdrawal.key | join(', ') }}
),
{% endif %}

{% if done %}
touched as (
  select {{ key | join(', ') }} from accepted where _judged_at > {{ done }}
  {% if withdrawal %}
  union
  select {{ withdrawal.key | join(', ') }} from deletions where _judged_at > {{ done }}
  {% endif %}
  {% if stops %}
  union
  -- What was held and is no more.
  select {{ key | join(', ') }}
  from accepted
  left semi join {{ this }} as decided
    on accepted._record_id = decided._record_id and decided.disposition = 'held'
  {% endif %}
),
{% endif %}

candidates as (
  select accepted.*
  from accepted
  {% if done %}
  left semi join touched
    on {% for column in key %}{{ ' and ' if not loop.first }}accepted.{{ column }} = touched.{{ column }}{% endfor %}
  {% endif %}
),

repeats as (
  select
    *,
    first_value(_record_id) over same_content as first_record_id,
    row_number() over same_content as repeat_number
  from candidates
  window same_content as (
    partition by {{ key | join(', ') }}, {{ terms.order_by }}, _payload_sha256
    order by _batch_id, _source_file, _position
  )
),

versions as (
  select
    *,
    lead(_record_id) over (
      partition by {{ key | join(', ') }} order by {{ terms.order_by }}, _payload_sha256
    ) as next_record_id
  from repeats
  where repeat_number = 1
),

decided as (
  select
    versions._record_id,
    versions._dataset,
    versions._batch_id,
    {% for column in key if column != '_dataset' %}
    versions.{{ column }},
    {% endfor %}
    versions.{{ terms.order_by }},
    case
      when versions.next_record_id is not null then 'superseded'
      {% if withdrawal %}
      when newest_deletions.deleted_at >= versions.{{ terms.order_by }} then 'withdrawn'
      {% endif %}
      else 'current'
    end as disposition,
    {% if withdrawal %}
    coalesce(
      versions.next_record_id,
      case
        when newest_deletions.deleted_at >= versions.{{ terms.order_by }}
          then newest_deletions.deletion_id
      end
    ) as by_record_id
    {% else %}
    versions.next_record_id as by_record_id
    {% endif %}
  from versions
  {% if withdrawal %}
  left join newest_deletions
    on {% for column in key %}{{ ' and ' if not loop.first }}versions.{{ column }} = newest_deletions.{{ withdrawal.key[loop.index0] }}{% endfor %}
  {% endif %}

  union all

  select
    _record_id,
    _dataset,
    _batch_id,
    {% for column in key if column != '_dataset' %}
    {{ column }},
    {% endfor %}
    {{ terms.order_by }},
    'duplicate' as disposition,
    first_record_id as by_record_id
  from repeats
  where repeat_number > 1
  {% if stops %}

  union all

  select
    every_accepted._record_id,
    every_accepted._dataset,
    every_accepted._batch_id,
    {% for column in key if column != '_dataset' %}
    every_accepted.{{ column }},
    {% endfor %}
    every_accepted.{{ terms.order_by }},
    'held' as disposition,
    cast(null as string) as by_record_id
  from every_accepted
  left semi join stopped
    on every_accepted._dataset = stopped._dataset and every_accepted._batch_id = stopped._batch_id
  where {{ is_after('every_accepted._judged_at', done) }}
  {% endif %}
),

stamped as (
  select
    *,
    '{{ verdict_contracts([record_type] + ([withdrawal.record_type] if withdrawal else [])) }}' as _verdict_contract,
    {{ run_clock() }} as _decided_at
  from decided
)

select * from stamped
{% endmacro %}
